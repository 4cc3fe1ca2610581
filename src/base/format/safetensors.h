// safetensors files, read and written. Source: the format's public specification.
//
//   u64 little-endian header length N | N bytes of JSON | the tensors' bytes
//
// The reader trusts no input: the header is at most 100,000,000 bytes and fits the file, starts
// with '{', has no duplicate names, every shape times its type's size equals its byte range, and
// the ranges cover the data without hole, overlap or rest. At most 8 dims, names at most 1 KiB.
#ifndef BASE_FORMAT_SAFETENSORS_H
#define BASE_FORMAT_SAFETENSORS_H

#include "base/host.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SAFETENSORS_MAX_DIMS = 8 };

typedef struct safetensors_entry {
    const char *name;
    dtype type;
    int ndim;
    int64_t dims[SAFETENSORS_MAX_DIMS];
    int64_t begin, bytes; // offset in the file, from its first byte
    int file_idx;         // index of the set's file
    const void *data;     // mapped by open_mapped, else NULL; may be unaligned for its type
} safetensors_entry;

typedef struct safetensors safetensors; // one file, or all files of an index

// `path` is a .safetensors file, a model.safetensors.index.json, or a folder that holds either
// (model.safetensors, or the index). Files that an index names must be in its folder: a name with a
// slash is ST_SECURITY, and so is a link. Entries stay valid until close. safetensors_read reads
// the bytes; it names file and byte if the file has been cut since.
NODISCARD status safetensors_open(const host *h, const char *path, safetensors **out);
// The same, mapped, for files that this program made: cutting such a file raises SIGBUS.
NODISCARD status safetensors_open_mapped(const host *h, const char *path, safetensors **out);
// Bytes [at, at + bytes) of a tensor of this set.
NODISCARD status safetensors_read(const safetensors *s, const safetensors_entry *e, int64_t at,
                                  void *out, int64_t bytes);
void safetensors_close(safetensors *s);
int64_t safetensors_count(const safetensors *s);
const safetensors_entry *safetensors_at(const safetensors *s, int64_t index); // sorted by name
const safetensors_entry *safetensors_find(const safetensors *s,
                                          const char *name); // NULL: not there
// Metadata string of the (first) file; NULL if absent.
const char *safetensors_metadata(const safetensors *s, const char *key);

// The header of an open file, without mapping it: its entries' `data` is NULL. `what` names the
// file in errors. The arena holds all of it.
typedef struct safetensors_head {
    const safetensors_entry *entries; // sorted by name
    int64_t count;
    const void *bytes;              // the file from its first byte to the first byte of data
    int64_t data_begin, file_bytes; // data_begin: the number of those bytes
} safetensors_head;
NODISCARD status safetensors_head_read(const host *h, file *f, arena *a, const char *what,
                                       safetensors_head *out);
const safetensors_entry *safetensors_head_find(const safetensors_head *s, const char *name);

// Writing: declare every tensor, then write their bytes in the order of declaration.
typedef struct safetensors_writer safetensors_writer;
NODISCARD status safetensors_writer_create(const host *h, const char *path,
                                           safetensors_writer **out);
// Pads the header as the format's own library does, so that the same tensors give the same file.
void safetensors_writer_pack(safetensors_writer *w);
NODISCARD status safetensors_writer_metadata(safetensors_writer *w, const char *key,
                                             const char *value);
NODISCARD status safetensors_writer_declare(safetensors_writer *w, const char *name, dtype type,
                                            int ndim, const int64_t *dims);
// The next bytes of the data section, any piece size. The header is written before the first.
NODISCARD status safetensors_writer_put(safetensors_writer *w, const void *data, int64_t bytes);
// Checks that all declared bytes were written, syncs, closes.
NODISCARD status safetensors_writer_finish(safetensors_writer *w);
void safetensors_writer_destroy(safetensors_writer *w); // after finish, or to abandon the file

#ifdef __cplusplus
}
#endif
#endif
