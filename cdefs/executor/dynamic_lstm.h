/* LSTMs whose state is quantised at each place of the sequence, and then multiplied by bytes; sums are exact. */

typedef struct {
    bl_get_data_t get_data;
    int n_threads;
    int n_sides, is_reverse; /* directions, the second backwards; whether the first is */
    int64_t n_places, batch, size;
} bl_dynamic_lstm_t;

/* Sums of the gates of input, output, forgetting and cell that the source makes, for each side; what the state is multiplied by;
   the states before the first place; all states, and the last ones. */
enum { BL_LSTM_SRC, BL_LSTM_SRC_1, BL_LSTM_WEIGHTS, BL_LSTM_SCALE, BL_LSTM_ZERO, BL_LSTM_STATE, BL_LSTM_CELL, BL_LSTM_DST,
    BL_LSTM_DST_STATE, BL_LSTM_DST_CELL, BL_LSTM_SCRATCHPAD, BL_LSTM_ARGS };

/* Bytes of scratchpad. */
int64_t bl_dynamic_lstm_scratchpad(const bl_dynamic_lstm_t *problem);

/* Of the type bl_execute_t; without memory where there is one side, or the last states are not asked for. Weights lie by panels
   of 32 columns, pairs of rows side by side, as many as 32 divides. */
int bl_dynamic_lstm(const void *problem, void *stream, int n_args, const void *args);
