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

#endif
