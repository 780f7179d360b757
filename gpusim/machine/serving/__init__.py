"""The time of one step of a served language model."""
