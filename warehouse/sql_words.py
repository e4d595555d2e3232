"""What a free question in SQL may be made of: sources after FROM, and functions that compute from their arguments."""

from __future__ import annotations

SOURCES = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY"})
"""Kinds of what may stand after FROM, as DuckDB's parser calls them; a table function is judged by its name."""

_OPERATORS = "+ - * / // % ^ ** || = == <> != < <= > >= ~~ !~~ ~~* !~~* ~~~ ~ !~ & | << >> @ ! and or not"
_WINDOWS = (
    "row_number rank rank_dense dense_rank percent_rank cume_dist ntile first_value last_value nth_value lead lag"
)
_AGGREGATES = """
    any_value approx_count_distinct approx_quantile arbitrary arg_max arg_min argmax argmin array_agg avg bit_and
    bit_or bit_xor bool_and bool_or corr count count_if count_star covar_pop covar_samp entropy favg first fsum
    group_concat histogram kurtosis last list listagg mad max max_by mean median min min_by mode product quantile
    quantile_cont quantile_disc regr_intercept regr_r2 regr_slope skewness stddev stddev_pop stddev_samp string_agg sum
    sumkahan var_pop var_samp variance
"""
_NUMBERS = """
    abs ceil ceiling cos degrees even exp floor gcd greatest isfinite isinf isnan lcm least ln log log10 log2 mod
    multiply add subtract divide pi pow power radians round round_even sign sin sqrt tan trunc width_bucket hash
"""
_TEXTS = """
    ascii bar chr concat concat_ws contains ends_with format format_bytes formatreadabledecimalsize formatreadablesize
    instr lcase left len length levenshtein like_escape not_like_escape ilike_escape not_ilike_escape lower lpad ltrim
    md5 ord position prefix printf regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace
    regexp_split_to_array replace reverse right rpad rtrim sha256 split split_part starts_with str_split strftime
    string_split strip_accents strlen strpos strptime try_strptime substr substring suffix translate trim ucase unicode
    upper
"""
_TIMES = """
    age century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname
    dayofmonth dayofweek dayofyear decade epoch epoch_ms epoch_ns epoch_us hour isodow isoyear last_day make_date
    make_time make_timestamp microsecond millisecond minute month monthname now quarter second time_bucket timezone
    to_days to_hours to_microseconds to_milliseconds to_minutes to_months to_seconds to_timestamp to_weeks to_years
    today week weekday weekofyear year yearweek current_date current_timestamp get_current_timestamp
"""
_OTHERS = """
    coalesce if ifnull nullif case typeof error unnest range generate_series generate_subscripts list_value
    list_aggregate list_apply list_concat list_contains list_distinct list_extract list_filter list_has list_max
    list_min list_position list_reduce list_reverse list_slice list_sort list_sum list_transform array_extract
    array_length array_slice array_to_string row struct_extract struct_pack struct_extract_at map map_extract map_keys
    map_values element_at try
"""
FUNCTIONS = frozenset(f"{_OPERATORS} {_WINDOWS} {_AGGREGATES} {_NUMBERS} {_TEXTS} {_TIMES} {_OTHERS}".split())
"""Functions that read nothing but their arguments and the clock, and change nothing."""
