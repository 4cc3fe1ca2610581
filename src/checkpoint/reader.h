// What the parts of checkpoint/ know of a reader beyond its public face.
#ifndef CHECKPOINT_READER_H
#define CHECKPOINT_READER_H

#include "checkpoint/manifest.h"

// Reads from the disk and not from the system's cache, from now on: what is read back after a save.
void ckpt_reader_bypass_cache(ckpt_reader *r);
const ckpt_manifest *ckpt_reader_manifest(const ckpt_reader *r);
// Whole extra file against its checksum.
NODISCARD status ckpt_reader_extra_check(ckpt_reader *r, const ckpt_file *extra);
// A state file's header, and that header and manifest agree about every tensor in it, whose number
// is added to *tensors.
NODISCARD status ckpt_reader_head_check(ckpt_reader *r, const ckpt_file *state, int64_t *tensors);
// The manifest's tensors fill its state files.
NODISCARD status ckpt_reader_cover_check(ckpt_reader *r);
// All of it. With a report every damage gets a line there; without, the first one ends it.
NODISCARD status ckpt_reader_verify(ckpt_reader *r, const char *path, text *report);
// Opens the manifest alone: the record and the lists, no other file.
NODISCARD status ckpt_reader_open_manifest(const host *h, const char *path, ckpt_reader **out);

#endif
