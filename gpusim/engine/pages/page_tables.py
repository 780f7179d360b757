"""How large the mappings are: 2 MiB where all of a block is mapped alike, else 64 KiB where a big page is, else single pages.

Promotion is eager: after every operation the entries follow from the masks alone, which is why nothing but the masks is kept.
An entry that is split leaves entries of 64 KiB behind.  The CPU maps page by page.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.engine.pages.bits import PAGES
from gpusim.engine.pages.driver_tables import ATS, CPU, HMM, MAPPED, RESIDENT, WRITABLE, DriverState
from gpusim.machine.driver_parameters import BIG_PAGE, BLOCK_BYTES

SIZES = (4096, BIG_PAGE, BLOCK_BYTES)
AT_ONCE = 4096  # blocks: a page is a byte here


def entries(M: DriverState) -> Any:
    """int64[processors, sizes]: entries of page tables now.  System memory that GPUs see by ATS is in the CPU's only."""
    n = int(M.state[0]["blocks"])
    return sum(_of(M, slice(first, min(first + AT_ONCE, n))) for first in range(0, n, AT_ONCE))


def _of(M: DriverState, part: slice) -> Any:
    """Those of some blocks."""
    s, blocks = M.state[0], M.blocks[part]
    n, processors, page = int(s["blocks"]), int(s["processors"]), int(s["page_bytes"])
    words = np.ascontiguousarray(M.bits[: 3 * processors * n].reshape(processors, 3, n, -1)[:, :, part])
    planes = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little").view(bool)
    out = np.zeros((processors, len(SIZES)), np.int64)
    out[CPU, SIZES.index(page)] = np.count_nonzero(planes[CPU, MAPPED])
    holder = planes[:, RESIDENT].argmax(axis=0).astype(np.uint8)
    for p in range(1, processors):
        where = np.where(planes[p, RESIDENT], np.uint8(p), holder)
        # A number for how a page is mapped: not at all, or with which permission and where.
        alike = np.where(planes[p, MAPPED], 1 + planes[p, WRITABLE] + 2 * where, np.uint8(0))
        alike[blocks["kind"] == ATS] = 0
        out[p] = sizes(alike, blocks, int(s["big"]), int(s["per_block"]), SIZES.index(page))
    return out


def sizes(alike: Any, blocks: Any, big: int, per_block: int, single: int) -> Any:
    """Entries of each size for blocks whose pages are mapped as `alike` says.

    Remote pages have to be contiguous in host memory; pages of HMM never are.
    """
    window = np.arange(PAGES) - (blocks["offset"] % big)[:, None]  # big pages begin where the window's do
    alike = np.where(window >= 0, np.take_along_axis(alike, np.maximum(window, 0), axis=1), 0)[:, :per_block]
    afar = (alike == 1) | (alike == 2)
    contiguous = np.where(blocks["kind"] == HMM, 0, np.where(afar.any(axis=1), blocks["host_chunk"], per_block))
    whole = (alike[:, 0] != 0) & (alike == alike[:, :1]).all(axis=1)
    whole &= (blocks["pages"] == per_block) & (contiguous >= per_block)
    rows = alike.reshape(len(alike), per_block // big, big)
    large = (rows[:, :, 0] != 0) & (rows == rows[:, :, :1]).all(axis=2)
    near = ~afar.reshape(rows.shape).any(axis=2) & (blocks["kind"] != HMM)[:, None]
    large &= ~whole[:, None] & (near | (contiguous >= big)[:, None])
    out = np.zeros(len(SIZES), np.int64)
    out[SIZES.index(BLOCK_BYTES)] = np.count_nonzero(whole)
    out[SIZES.index(BIG_PAGE)] = np.count_nonzero(large)
    out[single] += np.count_nonzero(alike[~whole]) - np.count_nonzero(large) * big
    return out
