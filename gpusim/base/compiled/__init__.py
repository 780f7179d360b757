"""How gpusim compiles: what Python calls is an entry, compiled when a run first asks for it; what it calls is a kernel.

    entry, kept       decorate what Python calls: for one signature, or for whatever types it is called with
    kernel, outlined  decorate what only compiled code calls
    by_pointer        decorate a tuple of arrays that many of them hand on
    Placed, tables_at place such a tuple in memory, and find it by its address
    address, function_at  hand a compiled function, or a Callback in Python, to compiled code
    fetch             brings a row of a table into the processor's cache before it is read

Importing a module compiles nothing.  What has been compiled is found by the next process as long as no compiled function that
it reaches has changed (`reached`).
"""

from gpusim.base.compiled.addresses import Callback, address, function_at
from gpusim.base.compiled.ahead import fetch
from gpusim.base.compiled.entries import BARE, CompiledEntry, direct, entry, kept
from gpusim.base.compiled.kernels import callee, inlined, kernel, outlined
from gpusim.base.compiled.pointers import Placed, by_pointer, tables_at

__all__ = [
    "BARE", "Callback", "CompiledEntry", "Placed", "address", "by_pointer", "callee", "direct", "entry", "fetch", "function_at",
    "inlined", "kept", "kernel", "outlined", "tables_at",
]  # fmt: skip
