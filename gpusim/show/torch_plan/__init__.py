"""What a run needs of a real PyTorch program, as one Python file.

    plan.py    a run -> the parts that say it, or the reason why PyTorch cannot
    file.py    the parts as one file
    parts/     code that is read as text and written into that file; nothing here imports it
"""
