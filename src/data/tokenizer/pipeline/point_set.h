// Sets of code points, as regular expressions build them. Private to this folder.
#ifndef DATA_TOKENIZER_PIPELINE_POINT_SET_H
#define DATA_TOKENIZER_PIPELINE_POINT_SET_H

#include "data/tokenizer/pipeline/unicode_category.h"

enum { POINT_MAX = 0x10ffff };

// Zero-initialise; free with point_set_deinit. The ranges may overlap and have any order until
// point_set_order.
typedef struct point_set {
    unicode_range *items;
    int64_t count, capacity;
} point_set;

NODISCARD status point_set_add(point_set *s, uint32_t first, uint32_t last);
NODISCARD status point_set_add_set(point_set *s, const point_set *other);
// Adds a general category ("Lu", "L"), a script or another property by its name, which may have
// any case, blanks and underlines. *found is false if there is no such name.
NODISCARD status point_set_add_property(point_set *s, const char *name, int64_t count, bool *found);
NODISCARD status point_set_add_named(point_set *s, unicode_name name);
// Ascending ranges with a gap between each two.
void point_set_order(point_set *s);
// The other code points; those of the set in both. Both sets must be ordered.
NODISCARD status point_set_invert(point_set *s);
NODISCARD status point_set_intersect(point_set *s, const point_set *other);
bool point_set_has(const point_set *s, uint32_t point);
void point_set_deinit(point_set *s);

#endif
