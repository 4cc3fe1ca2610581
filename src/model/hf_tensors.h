// The tensors of Hugging Face files that hold a weight. Internal to model/.
#ifndef MODEL_HF_TENSORS_H
#define MODEL_HF_TENSORS_H

#include "model/arch/arch.h"

enum { HF_NAME_BYTES = MODEL_NAME_BYTES };

// The head lies outside the inner model, so it has no prefix.
extern const arch_tensor hf_head_tensor, hf_score_tensor;
extern const char hf_embedding_name[];

typedef struct hf_source {
    const arch_tensor *tensor;
    char name[HF_NAME_BYTES];
    model_hf_tensor as; // its `name` is the one above
} hf_source;

// The file tensors that make up one weight: one, or one for each part. A weight that stacks experts
// has these for each expert, whose rows follow each other, or one tensor that stacks them too.
typedef struct hf_sources {
    const model_arch *arch;
    const op_weight *weight;
    const arch_tensor *tensors[4];
    int64_t row_begin[4], rows[4];
    int count; // of one expert
    int layer;
    int64_t experts, rows_of_expert; // experts is 1 where each tensor is all of its rows
    int64_t slices;                  // experts that a tensor stacks; 1: none
    const char *adapter;             // "lora_A", "lora_B", ...; NULL: of the base model
} hf_sources;

NODISCARD status hf_sources_of(const decoder_spec *spec, const op_weight *w, hf_sources *out);
int64_t hf_source_count(const hf_sources *all);
void hf_source_at(const hf_sources *all, int64_t index, hf_source *out);
bool hf_copy_name(const decoder_spec *spec, const char *ours, char name[HF_NAME_BYTES]);
// Finds the entry with or without the prefix. A tied pair may be stored under the head's name.
const safetensors_entry *hf_entry_find(const safetensors *set, const decoder_spec *spec,
                                       const hf_source *source);

// Blocks of 4-bit numbers with a scale each (mxfp4.c): `name`_blocks and `name`_scales in place of
// a tensor that stacks experts. Both NULL: it has none.
typedef struct hf_blocks {
    const safetensors_entry *blocks, *scales;
} hf_blocks;
hf_blocks hf_blocks_find(const safetensors *set, const decoder_spec *spec, const hf_source *source);
// Returns whether they can be the source of that many columns; if not, `why` is the reason.
bool hf_blocks_fit(const hf_blocks *b, const hf_source *source, int64_t columns, char why[160]);
// Reads slice `slice` as rows, in the order in which they are stored.
NODISCARD status hf_blocks_read(const safetensors *set, const hf_blocks *b, const hf_source *source,
                                int64_t slice, int64_t columns, float *out);

#endif
