"""What the swap planners of `policies/plan/` share: idle stretches, triggers, and a quick estimate of a plan's time."""
