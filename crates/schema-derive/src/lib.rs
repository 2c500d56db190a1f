//! `#[derive(Row)]`: typed rows over the layout of `polychron-schema`, where it is documented and re-exported.

mod expand;
mod parse;

use proc_macro::TokenStream;

/// Makes a struct a row; see `polychron_schema::Row`.
#[proc_macro_derive(Row, attributes(row, index, key, column))]
pub fn derive_row(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    match parse::Table::parse(&input) {
        Ok(table) => expand::expand(&table).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
