// Rotary positions (Su et al. 2021, arXiv:2104.09864) with the ways to stretch them, in double.
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include "model/model.h"

// Radians per position of each of the head_dim / 2 pairs, and what cos and sin are multiplied with.
// seq: the longest sequence, which dynamic and LongRoPE look at.
void model_rope_frequencies(const decoder_spec *spec, int64_t seq, double *frequencies,
                            double *attention_factor);
// One row of the table: `pairs` cosines, then as many sines.
void model_rope_row(const double *frequencies, int64_t pairs, double attention_factor,
                    int64_t position, float *row);

#endif
