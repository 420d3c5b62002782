/* Max pooling of bytes, channels last, 64 channels at once or the last ones. Included once for each instruction set, with TARGET,
   OVERLAPS and OWN(name) defined, and as OWN(...): the type block; least(is_signed); read(at, n) and write(at, block, n) of n
   channels, and larger(a, b, is_signed). With OVERLAPS there are 64 channels at the end, too, where there are so many at all. */

/* A row of results. */
INLINE TARGET void OWN(pool_channels)(
    const bl_byte_pooling_t *p, const char *src, char *dst, bl_taps_t rows, const int64_t n, const int is_signed) {
    int64_t right = p->dilations[1] * p->src_pixel;
    for (int64_t column = 0; column < p->results[1]; column++, dst += p->dst_pixel) {
        bl_taps_t taps = taps_of(p, 1, column);
        OWN(block) largest = OWN(least)(is_signed);
        for (int64_t row = rows.first; row < rows.last; row++) {
            int64_t y = rows.begin + row * p->dilations[0], x = taps.begin + taps.first * p->dilations[1];
            const char *at = src + y * p->src_row + x * p->src_pixel;
            for (int64_t tap = taps.first; tap < taps.last; tap++, at += right)
                largest = OWN(larger)(largest, OWN(read)(at, n), is_signed);
        }
        OWN(write)(dst, largest, n);
    }
}

TARGET static void OWN(pool_rows)(void *given) {
    const bl_byte_pooling_run_t *run = given;
    const bl_byte_pooling_t *p = run->problem;
    bl_range_t tasks = bl_share(p->n_images * p->results[0]);
    for (int64_t task = tasks.first; task < tasks.last; task++) {
        int64_t image = task / p->results[0], row = task % p->results[0];
        bl_taps_t rows = taps_of(p, 0, row);
        for (int64_t begin = 0; begin < p->n_channels; begin += 64) {
            int64_t channel = OVERLAPS && p->n_channels >= 64 && begin > p->n_channels - 64 ? p->n_channels - 64 : begin;
            int64_t n = p->n_channels - channel;
            const char *src = run->src + image * p->src_image + channel;
            char *dst = run->dst + image * p->dst_image + row * p->dst_row + channel;
            if (n < 64)
                p->is_signed ? OWN(pool_channels)(p, src, dst, rows, n, 1) : OWN(pool_channels)(p, src, dst, rows, n, 0);
            else
                p->is_signed ? OWN(pool_channels)(p, src, dst, rows, 64, 1) : OWN(pool_channels)(p, src, dst, rows, 64, 0);
        }
    }
}

#undef TARGET
#undef OVERLAPS
#undef OWN
