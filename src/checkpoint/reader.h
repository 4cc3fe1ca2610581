// Functions of a reader that only checkpoint/ uses.
#ifndef CHECKPOINT_READER_H
#define CHECKPOINT_READER_H

#include "checkpoint/manifest.h"

// From now on, reads from the disk and not from the system's cache; used to read back a save.
void ckpt_reader_bypass_cache(ckpt_reader *r);
const ckpt_manifest *ckpt_reader_manifest(const ckpt_reader *r);
// Checks a whole extra file against its checksum.
NODISCARD status ckpt_reader_extra_check(ckpt_reader *r, const ckpt_file *extra);
// Checks a state file's header, and that header and manifest agree about every tensor in it. Adds
// the number of tensors to *tensors.
NODISCARD status ckpt_reader_head_check(ckpt_reader *r, const ckpt_file *state, int64_t *tensors);
// Checks that the manifest's tensors fill its state files.
NODISCARD status ckpt_reader_cover_check(ckpt_reader *r);
// Checks that the step in the folder's name, if it has one, is the manifest's.
NODISCARD status ckpt_reader_name_check(const ckpt_reader *r);
// Checks everything. With a report, every damage adds a line to it; without one, the first damage
// ends the check.
NODISCARD status ckpt_reader_verify(ckpt_reader *r, const char *path, text *report);
// Opens only the manifest: the record and the lists, no other file.
NODISCARD status ckpt_reader_open_manifest(const host *h, const char *path, ckpt_reader **out);

#endif
