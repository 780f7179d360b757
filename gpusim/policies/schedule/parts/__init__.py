"""What schedulers are made of: tables that they share with the loop, the pool of KV blocks, queues."""
