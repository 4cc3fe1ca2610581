// A cache of generation: rows that are appended.
#include "kernels/cuda/args_generation.h"
#include "kernels/cuda/view.h"

// The row of a cache of `rows` rows that is position `at` of sequence b.
DEV_INLINE int64_t cache_row(const cuda_cache *c, int64_t b, int64_t at, int64_t rows)
{
    if (c->pages.data == NULL) return b * c->cache_seq + at;
    return dev_page_row(&c->pages, c->page, c->page_count, b, at, rows);
}

DEV_INLINE int64_t cache_length(const cuda_cache *c, int64_t b)
{
    const int64_t length = dev_index(&c->lengths, b);
    dev_index_check("a cache", b, length, c->cache_seq + 1);
    return length;
}

// Positions before 0 are padding at the front of a prompt that is shorter than the others.
DEV_KERNEL(cuda_cache_append, cuda_append_args, CUDA_THREADS)
{
    float x[DEV_VECTOR];
    for (int64_t n = dev_block(1); n < a.x.rows; n += dev_blocks(1)) {
        const int64_t b = n / a.cache.seq;
        const int64_t at = cache_length(&a.cache, b) - a.cache.seq + n % a.cache.seq;
        if (at < 0) continue;
        const int64_t row = cache_row(&a.cache, b, at, a.out.rows);
        for (int64_t j = dev_column_first(); j < a.x.columns; j += dev_column_step()) {
            dev_load8(&a.x, n, j, x);
            dev_store8(&a.out, row, j, x);
        }
    }
}
