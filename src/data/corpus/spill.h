// Work files of a build: the documents that the scan of one input file keeps. Private to this
// folder.
//
// A work file is a run of frames, each a batch of documents. Its index, which the
// second pass reads alone, holds hashes and sizes of the same documents, a column after the other.
//
//   NNNNNNN.docs    frame: u32 documents, u32 0, u64 raw bytes, u64 packed bytes, u64 hash of the
//                   packed bytes; then zstd data of
//                     documents x {u64 number in the file, with the mark in its upper 8 bits,
//                                  u32 text bytes, u32 name bytes},
//                     then each document's text and name
//   NNNNNNN.index   frame: u32 documents, u16 bands, u16 bytes of a signature, u64 byte of a frame
//                   in .docs, u64 hash of the columns; columns: u64[2] hash of each text, u32 bytes
//                   of each text (padded to 8 bytes), then for each band u64 of each document, then
//                   the signature of each document (padded to 8 bytes)
#ifndef DATA_CORPUS_SPILL_H
#define DATA_CORPUS_SPILL_H

#include "data/corpus.h"

enum { SPILL_MARK_NONE, SPILL_MARK_ACCEPT, SPILL_MARK_EDIT }; // decisions of a review
enum { SPILL_BATCH_BYTES = 1 << 20, SPILL_BATCH_DOCUMENTS = 8192, SPILL_BANDS_MAX = 256 };

// One document of a batch: its bytes are in spill_batch.bytes.
typedef struct spill_document {
    int64_t number; // in the input file, from 0; every row counts
    int mark;       // SPILL_MARK_*
    int64_t text_at, text_bytes, id_at, id_bytes;
    hash128 hash; // of the text
} spill_document;

typedef struct spill_batch {
    spill_document *documents;
    int64_t count, capacity;
    data_bytes bytes;
    uint64_t *bands; // [document][band]
    int64_t band_count, bands_capacity;
    uint8_t *signatures; // [document][signature_bytes]
    int64_t signature_bytes, signatures_capacity;
    data_bytes packed, index; // workspace: a frame as it is written
    data_bytes raw;
} spill_batch;

void spill_batch_clear(spill_batch *b);
void spill_batch_deinit(spill_batch *b);
NODISCARD status spill_batch_add(spill_batch *b, int64_t number, const char *text,
                                 int64_t text_bytes, const char *id, int64_t id_bytes);
// Makes the bands of all documents of the batch writable; band_count is set.
NODISCARD status spill_batch_reserve_bands(spill_batch *b);
NODISCARD status spill_batch_reserve_signatures(spill_batch *b); // signature_bytes is set

// Packs the batch's documents into b->packed and b->index; in any thread.
NODISCARD status spill_batch_pack(spill_batch *b);
// Writes the place of the packed frame in .docs into the index.
void spill_batch_set_place(spill_batch *b, int64_t docs_at);

// ---- reading ------------------------------------------------------------------------------------
typedef struct spill_frame {
    int64_t first; // number of its first document among those of the build
    int64_t documents, docs_at, index_at;
} spill_frame;

// The frames of one work file, as the later passes use them.
typedef struct spill_file {
    char *docs_path, *index_path;
    spill_frame *frames;
    int64_t frame_count, frame_capacity;
    int64_t first, documents; // among those of the build
    int64_t bands, signature_bytes;
} spill_file;

// Finds the frames of the work file whose paths and `first` are set; checks no hash of columns.
NODISCARD status spill_file_open(const host *h, arena *a, spill_file *f);
// Reads a column of a frame: hashes (2 words each), sizes, or band `band`.
// Reads the signature of document `number` of the frame.
NODISCARD status spill_signature_read(file *index, const host *h, const spill_file *f,
                                      int64_t frame, int64_t number, uint8_t *out);
typedef enum spill_column { SPILL_HASHES, SPILL_SIZES, SPILL_BAND } spill_column;
NODISCARD status spill_column_read(file *index, const host *h, const spill_file *f, int64_t frame,
                                   spill_column column, int64_t band, void *out);
// Reads a frame's documents.
NODISCARD status spill_frame_read(file *docs, const host *h, const spill_file *f, int64_t frame,
                                  spill_batch *b);

#endif
