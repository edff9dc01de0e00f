"""Page cache of the images before a storage run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nbkit.config.fields import LABEL_FAULT_FIELDS
from nbkit.datasets.find import find
from nbkit.datasets.listing import Listing
from nbkit.datasets.manifest import known_manifest, manifest_name, write_manifest
from nbkit.launch.submit import existing_data
from nbkit.readspeed.cache import drop_page_cache, fill_page_cache
from nbkit.store.paths import manifests_folder


def described_data(data: str, **rules: Any) -> dict[str, Any]:
    """Return what the training part of a data set amounts to, as JSON values.

    That is what an epoch reads. Images for evaluation may be of another size.
    """
    listing = find(data, **rules)
    contents = listing.contents
    used = {sample.shard for sample in contents.train}
    training = replace(
        listing,
        read=lambda: replace(contents, evaluation=()),
        shards=[name for n, name in enumerate(listing.shards) if n in used],
    )
    fingerprint = training.fingerprint()
    return {
        "kind": listing.kind,
        "files": fingerprint.files,
        "images": len(contents.train),
        "bytes": fingerprint.bytes,
    }


def before_start(plan: Mapping[str, Any], arm: Mapping[str, Any]) -> dict[str, str]:
    """Bring a data set's pages into the state that a study declares, and prove it."""
    # As a launch will name it: the manifest keeps the path.
    data = arm.get("data", "synthetic")
    rules = {name: arm[name] for name in LABEL_FAULT_FIELDS if name in arm}
    listing = find(existing_data(data), **rules)
    _ensure_manifest(listing, data)
    files = [path for name in listing.files if (path := listing.root / name).exists()]
    known = (
        drop_page_cache(files) if plan["cache"] == "cold" else fill_page_cache(files)
    )
    return {
        "cache": known.name,
        "cache_proven": "yes" if known.proven else "no",
        "cache_reason": known.reason,
    }


def _ensure_manifest(listing: Listing, data: str) -> None:
    """Decide now which images are readable: the first run would read all of them."""
    fingerprint = listing.fingerprint()
    known = manifests_folder() / manifest_name(fingerprint)
    if known_manifest(known, listing) is None:
        sys.stdout.write(f"Checking every image of {data} once\n")
        sys.stdout.flush()
        write_manifest(listing, fingerprint, known)
