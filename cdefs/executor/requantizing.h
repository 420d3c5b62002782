/* Bytes of other scales side by side: each part's bytes become those of the result's scale and zero point, as
   DequantizeLinear and QuantizeLinear make them, but by a table of the 256 that there are. Or one part by a table that
   is given. */

enum { BL_MAX_PARTS = 64 };

typedef struct {
    bl_get_data_t get_data;
    int n_threads;
    int lanes; /* floats in a vector: 16, 8 or 4 */
    int n_parts;
    int is_signed[64]; /* each part's bytes, and the result's */
    int dst_is_signed;
    int64_t n_rows;
    int64_t nbytes[64]; /* of each part in a row */
} bl_requantizing_t;

enum { BL_REQUANTIZE_SRC, BL_REQUANTIZE_SCALE, BL_REQUANTIZE_ZERO_POINT, BL_REQUANTIZE_ARGS };

/* Of the type bl_execute_t; three arguments for each part, then three for the result. A scale or a zero point may be
   absent. */
int bl_requantizing(const void *problem, void *stream, int n_args, const void *args);

enum { BL_LOOKUP_SRC, BL_LOOKUP_TABLE, BL_LOOKUP_DST, BL_LOOKUP_ARGS };

/* Of the type bl_execute_t. */
int bl_lookup(const void *problem, void *stream, int n_args, const void *args);
