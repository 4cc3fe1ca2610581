// Keeps the k values of largest magnitude, exactly, with their indices; the rest is fed back. k =
// keep * count, rounded up. Among equal magnitudes the first win; values that are not finite come
// before all. Squared error at most (1 - keep) of the whole. The payload is k pairs (index, bits),
// indices ascending. Source: Lin et al. 2018, arXiv:1712.01887; the threshold is found byte by byte
// from histograms, in four passes.
#include "comm/compress/compress_table.h"

#include <math.h>
#include <string.h>

typedef struct pair {
    uint32_t place, bits;
} pair;

static int64_t kept(const comm_bucket *b)
{
    const int64_t k = (int64_t)ceil(b->keep * (double)b->count);
    return min_i64(max_i64(k, 1), b->count);
}

static int64_t most_bytes(const comm_bucket *b)
{
    return kept(b) * (int64_t)sizeof(pair);
}

static uint32_t magnitude(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits &= 0x7fffffff;
    return bits < 0x7f800000 ? bits : 0x7f800000;
}

// The k-th largest magnitude, and how many of just that size are among the k.
static uint32_t threshold(const float *v, int64_t count, int64_t k, int64_t *equal)
{
    uint32_t prefix = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t histogram[256] = {0};
        for (int64_t i = 0; i < count; i++) {
            const uint32_t m = magnitude(v[i]);
            if ((m & mask) == prefix) histogram[m >> shift & 255]++;
        }
        uint32_t byte = 255;
        while (histogram[byte] < k) k -= histogram[byte--];
        prefix |= byte << shift;
        mask |= UINT32_C(255) << shift;
    }
    *equal = k;
    return prefix;
}

static int64_t encode(const comm_bucket *b, float *v, unsigned char *out, comm_loss *loss)
{
    if (b->count == 0) return 0;
    int64_t equal = 0;
    const uint32_t least = threshold(v, b->count, kept(b), &equal);
    unsigned char *at = out;
    for (int64_t i = 0; i < b->count; i++) {
        const uint32_t m = magnitude(v[i]);
        const bool finite = m < 0x7f800000;
        const double squared = finite ? (double)v[i] * (double)v[i] : 0;
        loss->norm_squared += squared;
        loss->non_finite += !finite;
        if (m > least || (m == least && equal-- > 0)) {
            pair p = {.place = (uint32_t)i, .bits = 0x7fc00000};
            if (finite) memcpy(&p.bits, &v[i], 4);
            memcpy(at, &p, sizeof(p));
            at += sizeof(p);
            v[i] = 0;
        } else {
            loss->error_squared += squared;
            if (!finite) v[i] = 0;
        }
    }
    return at - out;
}

static bool decode(const comm_bucket *b, const unsigned char *in, int64_t bytes, float *v)
{
    if (bytes != (b->count == 0 ? 0 : most_bytes(b))) return false;
    const int64_t k = bytes / (int64_t)sizeof(pair);
    int64_t last = -1;
    pair p;
    for (int64_t i = 0; i < k; i++) { // before a byte is written
        memcpy(&p, in + i * (int64_t)sizeof(p), sizeof(p));
        if ((int64_t)p.place <= last || (int64_t)p.place >= b->count) return false;
        last = p.place;
    }
    if (b->count > 0) memset(v, 0, (size_t)(b->count * 4));
    for (int64_t i = 0; i < k; i++) {
        memcpy(&p, in + i * (int64_t)sizeof(p), sizeof(p));
        memcpy(v + p.place, &p.bits, 4);
    }
    return true;
}

const comm_codec comm_codec_topk = {
    .name = "topk",
    .id = 4,
    .feedback = true,
    .most_bytes = most_bytes,
    .encode = encode,
    .decode = decode,
};
