"""One run: tables in, result out."""
