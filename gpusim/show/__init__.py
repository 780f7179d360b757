"""What results look like: figures, tables for the terminal, a report in Markdown.

view, groups   which axes vary, what runs are called, which belong together     (no matplotlib)
answer         what the numbers say, in sentences                               (no matplotlib)
basis          where kernel times come from, in a sentence                      (no matplotlib)
table, report  text for terminals, JSON, Markdown                               (no matplotlib)
figures        the figures by name; each is one file in figure/
heap           blocks, segments and holes of the device's memory, from an event log
style, panels  one look for all figures; small multiples
"""
