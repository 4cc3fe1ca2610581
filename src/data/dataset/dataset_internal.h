// The state of a dataset. Private to this folder.
#ifndef DATA_DATASET_INTERNAL_H
#define DATA_DATASET_INTERNAL_H

#include "data/chat/samples.h"
#include "data/dataset/mix.h"
#include "data/dataset/pack.h"
#include "data/dataset/sources.h"

// Documents that are not shown, as tokens [begin, end) of a source's stream; ascending and apart.
typedef struct excluded_range {
    int64_t begin, end;
} excluded_range;
typedef struct excluded_ranges {
    excluded_range *items;
    int64_t count, capacity;
} excluded_ranges;

struct data_dataset {
    const host *h;
    arena *a;
    int64_t seq;
    data_packing packing;
    data_positions positions;
    uint64_t seed;
    int32_t eot; // -1: none
    source *train;
    int64_t train_count;
    source valid;             // the source's own files; without files: blocks of train, or no data
    samples *sample_set;      // instead of the sources
    mix weighted;             // of sources; no phase: one source
    excluded_ranges *exclude; // [source]; NULL: none
    int64_t sequences[DATA_SPLIT_COUNT], tokens[DATA_SPLIT_COUNT];
    hash128 id;
};

// The source of a place.
static inline const source *dataset_source(const data_dataset *d, data_split split,
                                           const data_place *place)
{
    const bool own_files = split == DATA_VALID && d->valid.file_count > 0;
    return own_files ? &d->valid : &d->train[place->source];
}

#endif
