"""The numbers that figures show, one file per figure: plain values in base units (ns, bytes); nothing here draws."""
