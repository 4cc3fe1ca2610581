// Samples in memory, packed into rows. Private to samples.c and sample_rows.c.
#ifndef DATA_CHAT_SAMPLES_INTERNAL_H
#define DATA_CHAT_SAMPLES_INTERNAL_H

#include "data/chat/samples.h"
#include "data/dataset/mix.h"
#include "data/reader.h"

// The line that a sample is made of.
typedef struct sample_origin {
    int64_t file, line;         // index into samples.paths; line from 1 on
    int64_t id_begin, id_bytes; // the line's "id" in samples.id_texts; 0 bytes: none
    int64_t completion;         // of the line
    int64_t lender;             // sample of its set that has the second document's answer; -1: none
} sample_origin;

// Bits of packed_set.hidden.
enum { HIDES_SAMPLE = 1, HIDES_SECOND = 2 };

typedef struct packed_set {
    data_ids ids;       // of all samples, one after the other
    data_bytes trained; // as long
    int64_t *begin;     // [sample_count + 1]
    int64_t *second;    // [sample_count] where the second document begins; of one document its end
    data_bytes wanted;  // [sample_count]
    // Rollouts, in double: of each sample; of each token.
    data_bytes advantage, old, reference;
    int64_t sample_count, sample_capacity;
    // Row r holds the samples order[row_begin[r]] .. order[row_begin[r + 1] - 1].
    int64_t *order, *row_begin;
    int64_t row_count;
    data_sample_facts facts;
    data_bytes origins; // sample_origin of each
    data_bytes hidden;  // [sample_count] of those that are left out; empty: none
    // Source k: samples begin_of[k] .. begin_of[k + 1] - 1, in rows first_row[k] .. - 1.
    int64_t begin_of[DATA_SOURCES_MAX + 1], first_row[DATA_SOURCES_MAX + 1];
} packed_set;

struct samples {
    int64_t seq;
    data_packing packing;
    bool restarts; // positions, in each sample
    uint64_t seed;
    int32_t pad;
    bool is_paired; // samples are two documents
    bool scores;    // as in data_chat_spec
    char **paths;   // files that were read
    int64_t path_count, path_capacity;
    data_bytes id_texts;
    packed_set sets[DATA_SPLIT_COUNT];
    int64_t source_count; // 1: all entries are one source
    mix weighted;         // of the sources of training
    hash128 id;
};

// Sample k of a set.
sample_origin sample_origin_at(const packed_set *p, int64_t k);
// Fills in the line and its "id", whatever kind of sample it holds.
NODISCARD status sample_origin_read(samples *s, const data_line *line, sample_origin *out);

#endif
