// The mix of weighted sources: the source of each sequence, and its number among those of its
// source. Private to this folder.
//
// A phase lasts from one sequence to the next phase's first. Its weights become counts of a round,
// and the slots of a round are distributed so that after any n sequences each source has given its
// share of n to less than one sequence (Tijdeman 1980, the chairman assignment problem,
// doi:10.1016/0012-365X(80)90269-1). A round is as short as it can be for the weights to be met
// exactly, 65,536 sequences at most; weights that need more are rounded to that.
#ifndef DATA_DATASET_MIX_H
#define DATA_DATASET_MIX_H

#include "data/dataset.h"

typedef struct mix_phase {
    int64_t first;   // sequence
    int64_t round;   // slots
    int64_t *quota;  // [source]: its slots of a round
    int64_t *before; // [source]: sequences that it gave before the phase
    uint16_t *slots; // [round]: source
    int32_t *ranks;  // [round]: slots of that source before this one in the round
} mix_phase;

typedef struct mix {
    mix_phase *phases;
    int64_t phase_count, source_count;
} mix;

// A source of the mix.
typedef struct mix_source {
    double weight; // of its entry of data.train, or a number of epochs
    bool has_weight, has_epochs;
    int64_t sequences, tokens; // of an epoch
} mix_source;
// Makes the mix of a dataset: the weights of the entries, data.temperature, and the phases of
// data.curriculum. One source: no phase.
NODISCARD status mix_open(arena *a, const data_dataset_spec *spec, const mix_source *sources,
                          int64_t count, mix *out);

// Adds a phase with these weights, of which at least one is positive; `first` ascends from 0.
NODISCARD status mix_add(arena *a, mix *m, int64_t first, const double *weights);
// The source of sequence n, and its number among those that the source gives.
void mix_place(const mix *m, int64_t n, int64_t *source, int64_t *number);
void mix_hash(const mix *m, hash_stream *hash);

#endif
