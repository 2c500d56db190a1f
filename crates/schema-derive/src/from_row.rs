//! `#[derive(FromRow)]`: structs that rows of SQL are read as.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, GenericParam, LitStr, Result};

use crate::parse::unraw;
use crate::problems::{Options, Problems};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let mut problems = Problems::default();
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "a row is read as a struct: derive `FromRow` for one"));
    };
    let lifetimes: Vec<_> = input.generics.lifetimes().collect();
    for parameter in &input.generics.params {
        if !matches!(parameter, GenericParam::Lifetime(_)) {
            problems.add(
                quote::ToTokens::to_token_stream(parameter)
                    .into_iter()
                    .next()
                    .map_or_else(proc_macro2::Span::call_site, |token| token.span()),
                "a struct that a row is read as cannot have parameters but for one lifetime",
            );
        }
    }
    if let Some(second) = lifetimes.get(1) {
        problems.add(second.lifetime.span(), "a row has one lifetime: leave the others out");
    }
    let fields = match &data.fields {
        Fields::Named(fields) => {
            let each = fields.named.iter().map(|field| {
                let ident = field.ident.as_ref().expect("it is named");
                let name = problems.take(column_name(field)).flatten().unwrap_or_else(|| unraw(ident));
                quote!(#ident: ::polychron::sql::Row::get(row, #name)?)
            });
            let each: Vec<_> = each.collect();
            quote!(Self { #(#each),* })
        }
        Fields::Unnamed(fields) => {
            let each = (0..fields.unnamed.len()).map(|at| quote!(::polychron::sql::Row::get(row, #at)?));
            quote!(Self(#(#each),*))
        }
        Fields::Unit => {
            problems.add(input.ident.span(), "a struct without fields reads nothing of a row: add a field");
            TokenStream::new()
        }
    };
    problems.finish()?;
    let (ident, (_, arguments, _)) = (&input.ident, input.generics.split_for_impl());
    let lifetime = lifetimes.first().map_or_else(
        || quote!('row),
        |it| {
            let lifetime = &it.lifetime;
            quote!(#lifetime)
        },
    );
    Ok(quote! {
        #[automatically_derived]
        impl<#lifetime> ::polychron::sql::FromRow<#lifetime> for #ident #arguments {
            fn from_row(row: ::polychron::sql::Row<#lifetime>) -> ::std::result::Result<Self, ::polychron::sql::Error> {
                ::std::result::Result::Ok(#fields)
            }
        }
    })
}

/// The name in `#[sql(name = "…")]`.
fn column_name(field: &Field) -> Result<Option<String>> {
    let mut name = None;
    let mut options = Options::new(&["name"]);
    let is_own = |attribute: &&Attribute| attribute.path().is_ident("sql");
    for attribute in field.attrs.iter().filter(is_own) {
        attribute.parse_nested_meta(|meta| {
            options.next(&meta)?;
            name = Some(meta.value()?.parse::<LitStr>()?.value());
            Ok(())
        })?;
    }
    Ok(name)
}
