#!/bin/sh
# Kernels that the image lacks are compiled beside its own, so this copies them (about 20 MB) to a directory that can be
# written. The root file system can be read-only, with a tmpfs or an emptyDir at $NUMBA_CACHE_DIR. Without one, or as
# another user, the service reads them where they are, and compiles others to /tmp.
set -eu

if ! cp -R /opt/rarestream/kernels/. "$NUMBA_CACHE_DIR"; then
    echo "the compiled kernels cannot be copied to $NUMBA_CACHE_DIR; they are read from the image" >&2
    export NUMBA_CACHE_DIR=/opt/rarestream/kernels
fi
exec "$@"
