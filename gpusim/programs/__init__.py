"""Where programs come from: recorded, foreign recordings, the zoo, generators, managed programs, serving, transforms."""
