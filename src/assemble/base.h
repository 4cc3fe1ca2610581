// The base model of an adapter: where its weights come from, and a digest that recognizes them.
// Checkpoints of a run with an adapter hold the adapter's weights alone, and base.json.
#ifndef ASSEMBLE_BASE_H
#define ASSEMBLE_BASE_H

#include "checkpoint/checkpoint.h"
#include "model/model.h"

typedef struct assemble_base {
    const char *from; // a folder of files or a checkpoint; NULL: initial values of the seed
    int64_t seed;
    char digest[33];
} assemble_base;

// Computes the digest: of the values in the files of `from`, or of the shape and the seed.
NODISCARD status assemble_base_describe(const host *h, arena *a, const decoder_spec *spec,
                                        const char *from, int64_t seed, assemble_base *out);
NODISCARD status assemble_base_print(const assemble_base *base, text *out);
// Reads base.json of a checkpoint. *is_there is false if the checkpoint has none: it holds all
// weights.
NODISCARD status assemble_base_read(const host *h, arena *a, const char *checkpoint,
                                    assemble_base *out, bool *is_there);
// Refuses another base model than the one that the adapter was trained with.
NODISCARD status assemble_base_compare(const char *checkpoint, const assemble_base *was,
                                       const assemble_base *now);

// The values of a base model: of a checkpoint, of files, or initial ones.
typedef struct assemble_base_values {
    const decoder_spec *spec;
    ckpt_reader *checkpoint;
    safetensors *files;
    uint64_t seed; // of initial values, if both are NULL
} assemble_base_values;
NODISCARD status assemble_base_open(const host *h, arena *a, const decoder_spec *spec,
                                    const char *from, uint64_t seed, assemble_base_values *out);
void assemble_base_close(assemble_base_values *v);
// Reads weight `weight` of m, which is one of the base model.
NODISCARD status assemble_base_weight(const assemble_base_values *v, const op_model *m,
                                      int64_t weight, float *values);
// Reads a part of a weight of a checkpoint: its master values, or else its working copy.
NODISCARD status assemble_part_read(ckpt_reader *r, const op_weight *w, int part, float *values);
// Sets the initial values of weight `weight` of m, which has a length for each row of a matrix of
// the base model (DoRA): those of the base model's rows.
NODISCARD status assemble_base_lengths(const assemble_base_values *v, const op_model *m,
                                       int64_t weight, float *values);

#endif
