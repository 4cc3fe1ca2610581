// Filters over lists, which the table of filters names.
#ifndef DATA_JINJA_FILTERS_H
#define DATA_JINJA_FILTERS_H

#include "data/jinja/jinja_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

NODISCARD status filter_first(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_last(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_list(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_reverse(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_join(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_items(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_dictsort(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_sort(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_unique(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_min(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_max(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_sum(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_map(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_select(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_reject(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_selectattr(filter_call *c, const value *arguments, value *out);
NODISCARD status filter_rejectattr(filter_call *c, const value *arguments, value *out);
// Replaces a value by one whose mappings are sorted by key, at all depths.
NODISCARD status list_sort_keys(filter_call *c, value *v);

#ifdef __cplusplus
}
#endif
#endif
