// The frame around every codec: header, blocks, feedback and the measure of the loss.
//
//   stream   header (40 bytes) | payload
//   state    steps (8 bytes), 56 of zeros | residual (count floats)
#include "comm/compress/compress.h"

#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { STREAM_MAGIC = 0x31634754, BLOCK_DEFAULT = 256, STATE_HEAD = 64 }; // "TGc1"

typedef struct stream_head {
    uint32_t magic;
    uint8_t codec, whole; // whole: plain fp32, of a warm-up
    uint16_t zero;
    int32_t block, non_finite; // the latter at most INT32_MAX
    int64_t count, bytes;      // of the payload
    double keep;
} stream_head;
_Static_assert(sizeof(stream_head) == 40, "no holes");

double comm_loss_relative(const comm_loss *loss)
{
    return loss->norm_squared > 0 ? sqrt(loss->error_squared / loss->norm_squared) : 0;
}

static int64_t block_of(const comm_bucket *b)
{
    return b->block == 0 ? BLOCK_DEFAULT : b->block;
}

static status bucket_check(const comm_codec *c, const comm_bucket *b)
{
    const int64_t block = block_of(b);
    if (b->count < 0 || b->count > INT32_MAX) {
        return fail(ST_UNSUPPORTED, "a bucket of %lld elements; 2147483647 can be compressed",
                    (long long)b->count);
    }
    if (block < COMM_BLOCK_LEAST || block > COMM_BLOCK_MOST || (block & (block - 1)) != 0) {
        return fail(ST_CONFIG_RANGE, "blocks of %lld; a power of two between %d and %d is expected",
                    (long long)block, COMM_BLOCK_LEAST, COMM_BLOCK_MOST);
    }
    if (c->encode != NULL && !(b->keep > 0 && b->keep <= 1)) {
        return fail(ST_CONFIG_RANGE, "%s keeps a share of %g; above 0 and up to 1 is expected",
                    c->name, b->keep);
    }
    return ST_OK;
}

static int64_t payload_most(const comm_codec *c, const comm_bucket *b)
{
    if (c->most_bytes != NULL) return c->most_bytes(b);
    const int64_t block = block_of(b), rest = b->count % block;
    return b->count / block * c->block_bytes(block) + (rest > 0 ? c->block_bytes(rest) : 0);
}

int64_t comm_compress_bytes(const comm_codec *c, const comm_bucket *b)
{
    int64_t most = payload_most(c, b);
    if (c->warms && b->warm_steps > 0) most = max_i64(most, b->count * 4);
    return (int64_t)sizeof(stream_head) + most;
}

int64_t comm_compress_state_bytes(const comm_codec *c, const comm_bucket *b)
{
    return c->feedback ? STATE_HEAD + b->count * 4 : 0;
}

// ---- encoding ----------------------------------------------------------------------------------
// Adds the part of x that was lost.
static double lost_of(float x, float back)
{
    if (!isfinite(x)) return 0;
    return back == back ? (double)x - (double)back : (double)x;
}

typedef struct measure {
    double error[8], norm[8]; // value i in sum i mod 8
    int64_t bad;
} measure;

// The same, eight at a time. Values that are done.
__attribute__((target("avx2"))) static int64_t measure_avx2(const float *v, const float *back,
                                                            int64_t n, float *residual, measure *m)
{
    const __m256 minus = _mm256_set1_ps(-0.0F), most = _mm256_set1_ps(FLT_MAX);
    __m256d error[2] = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    __m256d norm[2] = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 x = _mm256_loadu_ps(v + i), y = _mm256_loadu_ps(back + i);
        const __m256 finite = _mm256_cmp_ps(_mm256_andnot_ps(minus, x), most, _CMP_LE_OQ);
        x = _mm256_and_ps(x, finite);
        y = _mm256_and_ps(_mm256_and_ps(y, finite), _mm256_cmp_ps(y, y, _CMP_ORD_Q));
        m->bad += 8 - __builtin_popcount((unsigned)_mm256_movemask_ps(finite));
        __m128 lost[2];
        for (int half = 0; half < 2; half++) {
            const __m256d a = _mm256_cvtps_pd(half == 0 ? _mm256_castps256_ps128(x)
                                                        : _mm256_extractf128_ps(x, 1));
            const __m256d b = _mm256_cvtps_pd(half == 0 ? _mm256_castps256_ps128(y)
                                                        : _mm256_extractf128_ps(y, 1));
            const __m256d d = _mm256_sub_pd(a, b);
            error[half] = _mm256_add_pd(error[half], _mm256_mul_pd(d, d));
            norm[half] = _mm256_add_pd(norm[half], _mm256_mul_pd(a, a));
            lost[half] = _mm256_cvtpd_ps(d);
        }
        if (residual != NULL) _mm256_storeu_ps(residual + i, _mm256_set_m128(lost[1], lost[0]));
    }
    for (int half = 0; half < 2; half++) {
        _mm256_storeu_pd(m->error + 4 * (int64_t)half, error[half]);
        _mm256_storeu_pd(m->norm + 4 * (int64_t)half, norm[half]);
    }
    return i;
}

// Returns the loss of a block; v, if it may be written, becomes the residual. Eight sums, added in
// one order.
static void block_measure(comm_vectors vectors, const float *v, const float *back, int64_t n,
                          float *residual, comm_loss *loss)
{
    measure m = {{0}, {0}, 0};
    int64_t i = vectors == COMM_AVX2 ? measure_avx2(v, back, n, residual, &m) : 0;
    for (; i < n; i++) {
        const double x = isfinite(v[i]) ? (double)v[i] : 0;
        const double lost = lost_of(v[i], back[i]);
        m.error[i % 8] += lost * lost;
        m.norm[i % 8] += x * x;
        m.bad += !isfinite(v[i]);
        if (residual != NULL) residual[i] = (float)lost;
    }
    for (int k = 0; k < 8; k++) {
        loss->error_squared += m.error[k];
        loss->norm_squared += m.norm[k];
    }
    loss->non_finite += m.bad;
}

static void residual_add(float *residual, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) residual[i] += x[i];
}

static int64_t blocks_encode(const comm_codec *c, const comm_bucket *b, const float *x,
                             float *residual, unsigned char *out, comm_loss *loss)
{
    __attribute__((uninitialized)) float back[COMM_BLOCK_MOST];
    const int64_t block = block_of(b);
    unsigned char *at = out;
    for (int64_t i = 0; i < b->count; i += block) {
        const int64_t n = min_i64(block, b->count - i);
        const float *v = x + i;
        if (residual != NULL) {
            residual_add(residual + i, v, n);
            v = residual + i;
        }
        c->encode_block(b->vectors, v, n, at);
        const bool decodes = c->decode_block(b->vectors, at, n, back);
        ASSERT(decodes);
        block_measure(b->vectors, v, back, n, residual != NULL ? residual + i : NULL, loss);
        at += c->block_bytes(n);
    }
    return at - out;
}

// Encodes a warm-up step, which loses nothing, so the residual stays zero.
static int64_t whole_encode(const comm_bucket *b, const float *x, unsigned char *out,
                            comm_loss *loss)
{
    if (b->count > 0) memcpy(out, x, (size_t)(b->count * 4));
    for (int64_t i = 0; i < b->count; i += COMM_BLOCK_MOST) {
        block_measure(b->vectors, x + i, x + i, min_i64(COMM_BLOCK_MOST, b->count - i), NULL, loss);
    }
    return b->count * 4;
}

status comm_compress(const comm_codec *c, const comm_bucket *b, const float *x, void *state,
                     void *out, int64_t *out_bytes, comm_loss *loss)
{
    TRY(bucket_check(c, b));
    ASSERT((state != NULL) == c->feedback);
    uint64_t steps = 0;
    float *residual = NULL;
    if (c->feedback) {
        memcpy(&steps, state, sizeof(steps));
        residual = (float *)(void *)((unsigned char *)state + STATE_HEAD);
    }
    *loss = (comm_loss){0};
    unsigned char *payload = (unsigned char *)out + sizeof(stream_head);
    stream_head head = {.magic = STREAM_MAGIC,
                        .codec = c->id,
                        .block = (int32_t)block_of(b),
                        .count = b->count,
                        .keep = c->encode != NULL ? b->keep : 0};
    if (c->warms && steps < (uint64_t)max_i64(b->warm_steps, 0)) {
        head.whole = 1;
        head.bytes = whole_encode(b, x, payload, loss);
    } else if (c->encode != NULL) {
        residual_add(residual, x, b->count);
        head.bytes = c->encode(b, residual, payload, loss);
    } else {
        head.bytes = blocks_encode(c, b, x, residual, payload, loss);
    }
    head.non_finite = (int32_t)loss->non_finite;
    memcpy(out, &head, sizeof(head));
    *out_bytes = (int64_t)sizeof(head) + head.bytes;
    steps++;
    if (c->feedback) memcpy(state, &steps, sizeof(steps));
    return ST_OK;
}

// ---- decoding ----------------------------------------------------------------------------------
static status damaged(const comm_codec *c, const char *what)
{
    return fail(ST_DAMAGED, "a compressed bucket (%s) is damaged: %s", c->name, what);
}

static status head_check(const comm_codec *c, const comm_bucket *b, const stream_head *h,
                         int64_t payload)
{
    if (h->magic != STREAM_MAGIC || h->zero != 0) return damaged(c, "its first bytes");
    if (h->codec != c->id || h->block != block_of(b) || h->count != b->count) {
        return fail(ST_DIVERGED,
                    "a compressed bucket is of codec %d, %lld elements in blocks of %d; "
                    "expected codec %d (%s), %lld in blocks of %lld",
                    h->codec, (long long)h->count, h->block, c->id, c->name, (long long)b->count,
                    (long long)block_of(b));
    }
    const double keep = c->encode != NULL ? b->keep : 0;
    if (h->keep != keep) return damaged(c, "the share that it keeps");
    if (h->whole > (c->warms ? 1 : 0)) return damaged(c, "sent whole");
    if (h->bytes != payload) return damaged(c, "its length");
    if (h->non_finite < 0 || h->non_finite > b->count) return damaged(c, "its count of NaN");
    if (c->encode == NULL || h->whole != 0) {
        const int64_t expected = h->whole != 0 ? b->count * 4 : payload_most(c, b);
        if (payload != expected) return damaged(c, "its length");
    }
    return ST_OK;
}

static status blocks_decode(const comm_codec *c, const comm_bucket *b, const unsigned char *in,
                            float *x)
{
    const int64_t block = block_of(b);
    for (int64_t i = 0; i < b->count; i += block) {
        const int64_t n = min_i64(block, b->count - i);
        if (!c->decode_block(b->vectors, in, n, x + i)) return damaged(c, "the scale of a block");
        in += c->block_bytes(n);
    }
    return ST_OK;
}

status comm_decompress(const comm_codec *c, const comm_bucket *b, const void *in, int64_t in_bytes,
                       float *x, int64_t *non_finite)
{
    TRY(bucket_check(c, b));
    stream_head head;
    if (in_bytes < (int64_t)sizeof(head)) return damaged(c, "it is shorter than its header");
    memcpy(&head, in, sizeof(head));
    const int64_t payload = in_bytes - (int64_t)sizeof(head);
    TRY(head_check(c, b, &head, payload));
    const unsigned char *at = (const unsigned char *)in + sizeof(head);
    if (head.whole != 0) {
        if (b->count > 0) memcpy(x, at, (size_t)(b->count * 4));
    } else if (c->decode != NULL) {
        if (!c->decode(b, at, payload, x)) return damaged(c, "an index");
    } else {
        TRY(blocks_decode(c, b, at, x));
    }
    *non_finite = head.non_finite;
    return ST_OK;
}
