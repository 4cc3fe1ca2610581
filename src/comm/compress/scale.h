// Scales of blocks: the largest finite magnitude, and products with it that neither overflow nor
// vanish.
#ifndef COMM_COMPRESS_SCALE_H
#define COMM_COMPRESS_SCALE_H

#include "comm/vectors.h"

// Between these, fp32 factors top / largest and largest / top are normal numbers for any `top` <=
// 448.
#define SCALE_LEAST 1e-30F
#define SCALE_MOST  1e30F

// Largest |v| of the finite values; 0 if there is none.
float scale_largest(comm_vectors vectors, const float *v, int64_t n);
bool scale_is_legal(float largest); // of a stream: finite, not negative

#endif
