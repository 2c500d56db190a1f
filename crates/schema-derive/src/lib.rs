//! `#[derive(Row)]`: typed rows over the layout of `polychron-schema`, where it is documented and re-exported.

mod column;
mod expand;
mod from_row;
mod parse;
mod problems;
mod types;

use proc_macro::TokenStream;
use proc_macro2::{Group, TokenTree};

#[doc = include_str!("row.md")]
#[proc_macro_derive(Row, attributes(row, index, references, key, column))]
pub fn derive_row(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    match parse::Table::parse(&input) {
        Ok(table) => expand::expand(&table).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

#[doc = include_str!("column.md")]
#[proc_macro_derive(Column, attributes(column, key, index, references, row))]
pub fn derive_column(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    column::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

#[doc = include_str!("column.md")]
#[proc_macro_derive(LibraryColumn, attributes(column, key, index, references, row))]
pub fn derive_library_column(input: TokenStream) -> TokenStream {
    through_library(derive_column(input).into()).into()
}

// For users of the crate `polychron` alone: it finds everything in `polychron::schema`.
#[doc = include_str!("row.md")]
#[proc_macro_derive(LibraryRow, attributes(row, index, references, key, column))]
pub fn derive_library_row(input: TokenStream) -> TokenStream {
    through_library(derive_row(input).into()).into()
}

#[doc = include_str!("from_row.md")]
#[proc_macro_derive(FromRow, attributes(sql))]
pub fn derive_from_row(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    from_row::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Turns each path into `polychron_schema` into one through `polychron::schema`.
fn through_library(tokens: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    let mut rewritten = proc_macro2::TokenStream::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == "polychron_schema" => {
                rewritten.extend(quote::quote!(polychron::schema))
            }
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), through_library(group.stream()));
                inner.set_span(group.span());
                rewritten.extend([TokenTree::Group(inner)]);
            }
            other => rewritten.extend([other]),
        }
    }
    rewritten
}
