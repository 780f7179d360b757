"""Time: the event heap, queues of activities, links as fluids, and what is waited for."""
