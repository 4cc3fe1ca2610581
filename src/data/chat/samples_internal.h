// Samples in memory, packed into rows. Private to samples.c and sample_rows.c.
#ifndef DATA_CHAT_SAMPLES_INTERNAL_H
#define DATA_CHAT_SAMPLES_INTERNAL_H

#include "data/chat/samples.h"
#include "data/dataset/mix.h"

// How exclusion lists name a sample: hashes of "PATH:LINE", of "FILE:LINE" without folders, and of
// the line's "id".
typedef struct sample_names {
    hash128 place, file, id;
} sample_names;

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
    data_bytes names;  // sample_names of each
    data_bytes hidden; // [sample_count] of those that are left out; empty: none
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
    packed_set sets[DATA_SPLIT_COUNT];
    int64_t source_count; // 1: all entries are one source
    mix weighted;         // of the sources of training
    hash128 id;
};

#endif
