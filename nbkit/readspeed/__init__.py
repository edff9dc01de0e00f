"""Read speed of storage: sequential and random, with cold and warm cache.

Requires neither root nor torch.
"""

from nbkit.readspeed.cache import (
    PageCacheState,
    check_cold,
    drop_page_cache,
    resident_share,
)
from nbkit.readspeed.measuring import ReadSpeed, measure

__all__ = [
    "PageCacheState",
    "ReadSpeed",
    "check_cold",
    "drop_page_cache",
    "measure",
    "resident_share",
]
