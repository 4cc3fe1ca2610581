// The table of operations: one row each, in the order of their codes. The rows are defined in the
// files of their groups.
#include "op/op_internal.h"

static const op_kind *const table[OP_CODE_COUNT] = {
#define OP_TABLE_ROW(upper, lower) [OP_##upper] = &op_row_##lower,
    OP_TABLE(OP_TABLE_ROW)
#undef OP_TABLE_ROW
};

const op_kind *op_kind_of(op_code code)
{
    ASSERT((int)code >= 0 && code < OP_CODE_COUNT);
    return table[code];
}
