// Unpacks LZ4: blocks, frames, and the blocks that Hadoop writes. Private to this folder.
//
// Source: "LZ4 Block Format Description" and "LZ4 Frame Format Description" 1.6.4. All functions
// write exactly `to_bytes` bytes; false: the data are damaged, or give another number of bytes.
#ifndef DATA_CORPUS_LZ4_H
#define DATA_CORPUS_LZ4_H

#include "base/base.h"

bool lz4_block(const uint8_t *from, int64_t bytes, uint8_t *to, int64_t to_bytes);
// One frame or more. Checksums are verified; a frame that needs a dictionary is damaged.
bool lz4_frames(const uint8_t *from, int64_t bytes, uint8_t *to, int64_t to_bytes);
// Blocks behind two big-endian sizes (unpacked, packed). Old writers left the sizes out, so data
// that do not fit them are read as a block.
bool lz4_hadoop(const uint8_t *from, int64_t bytes, uint8_t *to, int64_t to_bytes);

#endif
