//! Functions of Postgres's own that change nothing, reach nothing and wait for nothing. All others are acts.

/// Sorted, so that it can be searched.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "abs", "acos", "acosd", "acosh", "age", "any_value", "array", "array_agg", "array_append",
    "array_cat", "array_dims", "array_fill", "array_length", "array_lower", "array_ndims",
    "array_position", "array_positions", "array_prepend", "array_remove", "array_replace",
    "array_sample", "array_shuffle", "array_to_json", "array_to_string", "array_upper", "ascii", "asin",
    "asind", "asinh", "atan", "atan2", "atan2d", "atand", "atanh", "avg", "bit_and", "bit_count",
    "bit_length", "bit_or", "bit_xor", "bool_and", "bool_or", "box", "btrim", "cardinality", "cbrt",
    "ceil", "ceiling", "char_length", "character_length", "chr", "circle", "clock_timestamp", "coalesce",
    "col_description", "concat", "concat_ws", "convert_from", "convert_to", "corr", "cos", "cosd",
    "cosh", "cot", "cotd", "count", "covar_pop", "covar_samp", "cume_dist", "current_catalog",
    "current_database", "current_date", "current_role", "current_schema", "current_schemas",
    "current_setting", "current_time", "current_timestamp", "current_user", "currval", "date_add",
    "date_bin", "date_part", "date_subtract", "date_trunc", "decode", "degrees", "dense_rank",
    "diagonal", "diameter", "div", "encode", "enum_first", "enum_last", "enum_range", "every", "exp",
    "extract", "factorial", "family", "first_value", "floor", "format", "format_type", "gcd",
    "gen_random_uuid", "generate_series", "generate_subscripts", "get_bit", "get_byte", "greatest",
    "grouping", "has_any_column_privilege", "has_column_privilege", "has_database_privilege",
    "has_function_privilege", "has_language_privilege", "has_schema_privilege", "has_sequence_privilege",
    "has_server_privilege", "has_table_privilege", "has_tablespace_privilege", "has_type_privilege",
    "hashtext", "height", "host", "hostmask", "inet_client_addr", "inet_client_port", "inet_merge",
    "inet_same_family", "inet_server_addr", "inet_server_port", "initcap", "isclosed", "isempty",
    "isfinite", "isopen", "json_agg", "json_array", "json_array_elements", "json_array_elements_text",
    "json_array_length", "json_arrayagg", "json_build_array", "json_build_object", "json_each",
    "json_each_text", "json_exists", "json_extract_path", "json_extract_path_text", "json_object",
    "json_object_agg", "json_object_keys", "json_objectagg", "json_populate_record",
    "json_populate_recordset", "json_query", "json_strip_nulls", "json_to_record", "json_to_recordset",
    "json_typeof", "json_value", "jsonb_agg", "jsonb_array_elements", "jsonb_array_elements_text",
    "jsonb_array_length", "jsonb_build_array", "jsonb_build_object", "jsonb_each", "jsonb_each_text",
    "jsonb_extract_path", "jsonb_extract_path_text", "jsonb_insert", "jsonb_object", "jsonb_object_agg",
    "jsonb_object_keys", "jsonb_path_exists", "jsonb_path_match", "jsonb_path_query",
    "jsonb_path_query_array", "jsonb_path_query_first", "jsonb_populate_record",
    "jsonb_populate_recordset", "jsonb_pretty", "jsonb_set", "jsonb_set_lax", "jsonb_strip_nulls",
    "jsonb_to_record", "jsonb_to_recordset", "jsonb_typeof", "justify_days", "justify_hours",
    "justify_interval", "lag", "last_value", "lastval", "lcm", "lead", "least", "left", "length", "line",
    "ln", "localtime", "localtimestamp", "log", "log10", "lower", "lower_inc", "lower_inf", "lpad",
    "lseg", "ltrim", "make_date", "make_interval", "make_time", "make_timestamp", "make_timestamptz",
    "masklen", "max", "md5", "min", "min_scale", "mod", "mode", "multirange", "netmask", "network",
    "normalize", "now", "npoints", "nth_value", "ntile", "nullif", "num_nonnulls", "num_nulls",
    "numnode", "obj_description", "octet_length", "overlay", "parse_ident", "path", "pclose",
    "percent_rank", "percentile_cont", "percentile_disc", "pg_backend_pid", "pg_char_to_encoding",
    "pg_client_encoding", "pg_collation_is_visible", "pg_column_compression", "pg_column_size",
    "pg_conversion_is_visible", "pg_current_snapshot", "pg_database_size", "pg_describe_object",
    "pg_encoding_max_length", "pg_encoding_to_char", "pg_function_is_visible",
    "pg_get_catalog_foreign_keys", "pg_get_constraintdef", "pg_get_expr", "pg_get_function_arg_default",
    "pg_get_function_arguments", "pg_get_function_identity_arguments", "pg_get_function_result",
    "pg_get_function_sqlbody", "pg_get_functiondef", "pg_get_indexdef", "pg_get_keywords",
    "pg_get_object_address", "pg_get_partition_ancestors", "pg_get_partition_constraintdef",
    "pg_get_partkeydef", "pg_get_ruledef", "pg_get_serial_sequence", "pg_get_statisticsobjdef",
    "pg_get_statisticsobjdef_columns", "pg_get_triggerdef", "pg_get_userbyid", "pg_get_viewdef",
    "pg_has_role", "pg_identify_object", "pg_index_column_has_property", "pg_index_has_property",
    "pg_indexam_has_property", "pg_indexes_size", "pg_input_is_valid", "pg_is_in_recovery",
    "pg_is_other_temp_schema", "pg_my_temp_schema", "pg_opclass_is_visible", "pg_operator_is_visible",
    "pg_opfamily_is_visible", "pg_options_to_table", "pg_partition_root", "pg_partition_tree",
    "pg_postmaster_start_time", "pg_relation_filenode", "pg_relation_is_publishable", "pg_relation_size",
    "pg_sequence_last_value", "pg_sequence_parameters", "pg_size_bytes", "pg_size_pretty",
    "pg_statistics_obj_is_visible", "pg_table_is_visible", "pg_table_size", "pg_tablespace_location",
    "pg_tablespace_size", "pg_total_relation_size", "pg_ts_config_is_visible", "pg_ts_dict_is_visible",
    "pg_ts_parser_is_visible", "pg_ts_template_is_visible", "pg_type_is_visible", "pg_typeof",
    "phraseto_tsquery", "pi", "plainto_tsquery", "point", "polygon", "popen", "position", "power",
    "querytree", "quote_ident", "quote_literal", "quote_nullable", "radians", "radius", "random",
    "random_normal", "range_agg", "range_intersect_agg", "range_merge", "rank", "regexp_count",
    "regexp_instr", "regexp_like", "regexp_match", "regexp_matches", "regexp_replace",
    "regexp_split_to_array", "regexp_split_to_table", "regexp_substr", "regr_avgx", "regr_avgy",
    "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
    "repeat", "replace", "reverse", "right", "round", "row", "row_number", "row_security_active",
    "row_to_json", "rpad", "rtrim", "scale", "session_user", "set_bit", "set_byte", "set_masklen",
    "setweight", "sha224", "sha256", "sha384", "sha512", "shobj_description", "sign", "sin", "sind",
    "sinh", "slope", "split_part", "sqrt", "starts_with", "statement_timestamp", "stddev", "stddev_pop",
    "stddev_samp", "string_agg", "string_to_array", "string_to_table", "strip", "strpos", "substr",
    "substring", "sum", "tan", "tand", "tanh", "text", "timeofday", "to_ascii", "to_bin", "to_char",
    "to_date", "to_hex", "to_json", "to_jsonb", "to_number", "to_oct", "to_regclass", "to_regcollation",
    "to_regnamespace", "to_regoper", "to_regoperator", "to_regproc", "to_regprocedure", "to_regrole",
    "to_regtype", "to_timestamp", "to_tsquery", "to_tsvector", "transaction_timestamp", "translate",
    "trim", "trim_array", "trim_scale", "trunc", "ts_debug", "ts_delete", "ts_filter", "ts_headline",
    "ts_lexize", "ts_parse", "ts_rank", "ts_rank_cd", "ts_token_type", "tsquery_phrase",
    "tsvector_to_array", "txid_current_if_assigned", "unicode_version", "unistr", "unnest", "upper",
    "upper_inc", "upper_inf", "user", "uuid_extract_timestamp", "uuid_extract_version", "uuidv4",
    "uuidv7", "var_pop", "var_samp", "variance", "version", "websearch_to_tsquery", "width",
    "width_bucket", "xmlagg", "xmlattributes", "xmlcomment", "xmlconcat", "xmlelement", "xmlexists",
    "xmlforest", "xmlparse", "xmlpi", "xmlroot", "xmlserialize", "xpath", "xpath_exists",
];

/// By its name alone, in lower case.
pub(super) fn is_harmless(name: &str) -> bool {
    HARMLESS.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_has_none_that_acts() {
        assert!(HARMLESS.is_sorted());
        for bad in [
            "set_config",
            "nextval",
            "setval",
            "pg_sleep",
            "pg_read_file",
            "pg_terminate_backend",
            "dblink",
            "dblink_exec",
            "lo_import",
            "lo_export",
            "query_to_xml",
            "pg_notify",
            "pg_advisory_lock",
            "pg_logical_emit_message",
            "pg_reload_conf",
            "ts_stat",
            "ts_rewrite",
            "pg_switch_wal",
            "cursor_to_xml",
            "table_to_xml",
            "txid_current",
        ] {
            assert!(!is_harmless(bad), "{bad}");
        }
        assert!(is_harmless("count") && is_harmless("jsonb_agg"));
    }
}
