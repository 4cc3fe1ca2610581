// Rotary positions (Su et al. 2021, arXiv:2104.09864) and their context extensions, in double.
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include "model/model.h"

// Computes radians per position of each of the head_dim / 2 pairs, and the factor of cos and sin.
// seq: the longest sequence, on which dynamic and LongRoPE depend.
void model_rope_frequencies(const decoder_spec *spec, int64_t seq, double *frequencies,
                            double *attention_factor);
// One row of the table: `pairs` cosines, then as many sines.
void model_rope_row(const double *frequencies, int64_t pairs, double attention_factor,
                    int64_t position, float *row);

#endif
