"""GMLake: PyTorch's caching allocator, whose large free chunks can be stitched to one range of addresses.

    segments   | live |  free  | live |      | free | live |
                      └───┬────┘             └──┬───┘
    stitch             |  part  |  part  |                      a range of its own (device.VIRTUAL and above)

A *stitch* maps memory that is a part of segments a second time.  It is idle or used by one unit; while it is used, the chunks
of its parts are live.  An idle stitch can be used again when all its parts are free.

`stitches.py` holds the stitches, `pool.py` the chunks of segments.
"""
