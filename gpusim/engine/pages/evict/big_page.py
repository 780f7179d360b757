"""64 KiB at a time: the big page that was served longest ago, in the driver's sense."""

PIECES = True
