"""How the learned policies that ship were trained; docs/learned.md tells what they are worth."""
