"""What every room stands on: units, errors, strict YAML, files, and how functions are compiled."""
