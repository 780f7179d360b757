"""Programs of many ranks: how one recording is divided over them, and which of their operators belong together."""
