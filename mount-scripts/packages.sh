# SPDX-License-Identifier: Apache-2.0
# Debian packages that CairnFS is built with; sourced by quickstart and tests/run, so that the two cannot differ.
build_packages=(gcc g++ libc6-dev pkg-config ninja-build python3 libfuse3-dev fuse3 librocksdb-dev liblz4-dev
    librust-blake3-dev zlib1g-dev libcjson-dev uthash-dev libbsd-dev libcurl4-openssl-dev libssl-dev libexpat1-dev libmicrohttpd-dev libisal-dev)
