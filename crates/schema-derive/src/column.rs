//! `#[derive(Column)]`: enums and structs around one value as column types.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Data, DataEnum, DataStruct, DeriveInput, Ident, Member, Path, Result, Type};

use crate::expand::at_root;
use crate::problems::Problems;
use crate::types;

/// The attributes of `derive(Row)`, which mean nothing here.
const OF_ROWS: [&str; 4] = ["key", "index", "references", "row"];

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let mut problems = Problems::default();
    if let Some(parameter) = input.generics.params.first() {
        problems.add(
            parameter.span(),
            "a column type cannot have parameters: name the types in it, and derive `Column` for each that a row needs",
        );
    }
    let root = parse_root(&input.attrs, &mut problems);
    let tokens = match &input.data {
        Data::Enum(data) => of_enum(&input.ident, data, &mut problems),
        Data::Struct(data) => of_struct(&input.ident, data, &mut problems),
        Data::Union(data) => {
            problems.add(data.union_token.span, "a union is no column type: derive `Column` for an enum or a struct");
            TokenStream::new()
        }
    };
    problems.finish()?;
    Ok(at_root(tokens, root.as_ref()))
}

/// `#[column(crate = some::path)]`, the one attribute there is.
fn parse_root(attributes: &[Attribute], problems: &mut Problems) -> Option<Path> {
    let mut root = None;
    refuse(attributes.iter().filter(|attribute| !attribute.path().is_ident("column")), problems);
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("column")) {
        problems.take(attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error(
                    "a column type has no such attribute: `max`, `default` and `was` belong to the field of the row; here there is only \
                     `crate = some::path`",
                ));
            }
            root = Some(meta.value()?.parse()?);
            Ok(())
        }));
    }
    root
}

/// Refuses attributes that belong to rows.
fn refuse<'a>(attributes: impl IntoIterator<Item = &'a Attribute>, problems: &mut Problems) {
    for attribute in attributes {
        let path = attribute.path();
        if let Some(name) = OF_ROWS.into_iter().find(|name| path.is_ident(name)) {
            let what = format!("`#[{name}]` belongs to a struct with `#[derive(Row)]` or its fields: remove it here");
            problems.add(path.span(), what);
        } else if path.is_ident("column") {
            problems
                .add(path.span(), "`#[column]` belongs to a field of a struct with `#[derive(Row)]`: remove it here");
        }
    }
}

fn of_enum(ident: &Ident, data: &DataEnum, problems: &mut Problems) -> TokenStream {
    if data.variants.is_empty() {
        problems.add(ident.span(), "an enum without variants has no values to store: add a variant");
    }
    for variant in &data.variants {
        refuse(&variant.attrs, problems);
        if !variant.fields.is_empty() {
            problems.add(
                variant.fields.span(),
                "a variant with fields does not fit in a column, which stores its number: keep the fields in columns of their own",
            );
        }
    }
    if !problems.is_empty() {
        return TokenStream::new();
    }
    let names: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let texts = names.iter().map(|name| crate::parse::unraw(name));
    let numbers: Vec<_> = (0..names.len()).map(|at| quote::format_ident!("NUMBER_{at}")).collect();
    let first = names[0];
    let check = quote_spanned! {ident.span()=>
        const _: () = if let ::std::option::Option::Some(problem) = ::polychron_schema::EnumType::width_problem(VARIANTS) {
            ::std::panic!("{}", problem)
        };
    };
    let column = column_of_enum(ident);
    let is_copied = is_copied(ident);
    quote! {
        const _: () = {
            const VARIANTS: &[::polychron_schema::EnumVariant] = &[#(
                ::polychron_schema::EnumVariant { name: #texts, number: #ident::#names as i128 }
            ),*];
            const BYTES: u32 = ::polychron_schema::EnumType::unchecked(VARIANTS).width();
            #check

            #[allow(trivial_bounds)]
            impl ::polychron_schema::derive::EnumColumn for #ident #is_copied {
                const ENUM: &'static ::polychron_schema::EnumType = &::polychron_schema::EnumType::unchecked(VARIANTS);
                const FIRST: Self = Self::#first;

                #[inline(always)]
                fn to_bits(self) -> u64 {
                    ::polychron_schema::derive::bits_of(self as i128, BYTES)
                }

                #[inline(always)]
                fn from_bits(bits: u64) -> ::std::option::Option<Self> {
                    #(const #numbers: u64 = ::polychron_schema::derive::bits_of(#ident::#names as i128, BYTES);)*
                    match bits {
                        #(#numbers => ::std::option::Option::Some(Self::#names),)*
                        _ => ::std::option::Option::None,
                    }
                }
            }
            #column
        };
    }
}

/// Says of every implementation that the enum must be copied, so that one that is not is one error and not one for each of them.
fn is_copied(ident: &Ident) -> TokenStream {
    quote_spanned!(ident.span()=> where #ident: ::std::marker::Copy)
}

/// Everything that follows from an `EnumColumn`.
fn column_of_enum(ident: &Ident) -> TokenStream {
    let (is_copied, value, key) = (is_copied(ident), value_of_enum(ident), key_of_enum(ident));
    quote! {
        #value
        #key

        ::polychron_schema::derive::read_by_value!(@[] [#ident] [#is_copied]);

        #[allow(trivial_bounds)]
        impl ::std::convert::From<#ident> for ::polychron_schema::Value #is_copied {
            fn from(value: #ident) -> Self {
                ::polychron_schema::derive::EnumColumn::to_value(value)
            }
        }
    }
}

fn value_of_enum(ident: &Ident) -> TokenStream {
    let is_copied = is_copied(ident);
    quote! {
        #[allow(trivial_bounds)]
        impl ::polychron_schema::ColumnValue for #ident #is_copied {
            type Ref<'a> = Self;
            type Plain = Self;
            type Written = ();
            const TYPE: ::polychron_schema::ColumnType =
                ::polychron_schema::ColumnType::Enum(<Self as ::polychron_schema::derive::EnumColumn>::ENUM);

            #[inline(always)]
            fn read(row: ::polychron_schema::RowRef<'_>, slot: ::polychron_schema::Slot) -> Self {
                ::polychron_schema::derive::EnumColumn::read(row, slot)
            }

            #[inline(always)]
            fn build(out: &mut ::polychron_schema::RowBuffer, slot: ::polychron_schema::Slot, value: Self) {
                ::polychron_schema::derive::EnumColumn::build(value, out, slot);
            }

            #[inline(always)]
            fn change(
                row: &mut ::polychron_schema::RowMut<'_>,
                _: &'static str,
                slot: ::polychron_schema::Slot,
                value: Self,
            ) {
                ::polychron_schema::derive::EnumColumn::change(value, row, slot);
            }

            #[inline(always)]
            fn borrow(&self) -> Self {
                *self
            }

            #[inline(always)]
            fn own(value: Self) -> Self {
                value
            }
        }

        #[allow(trivial_bounds)]
        impl ::polychron_schema::derive::Blank for #ident #is_copied {
            #[inline]
            fn write_null(_: &mut ::polychron_schema::RowBuffer, _: ::polychron_schema::Slot) {}

            #[inline]
            fn change_to_null(
                row: &mut ::polychron_schema::RowMut<'_>,
                _: &'static str,
                slot: ::polychron_schema::Slot,
            ) {
                ::polychron_schema::derive::change_to_zeros(row, slot);
            }
        }
    }
}

fn key_of_enum(ident: &Ident) -> TokenStream {
    let is_copied = is_copied(ident);
    let key = key(
        ident,
        &is_copied,
        &quote! {
            type Width = <::polychron_schema::derive::Bytes<BYTES> as ::polychron_schema::derive::HasWidth>::Width;
            const FIXED_BYTES: ::std::option::Option<usize> =
                ::std::option::Option::Some(BYTES as usize);

            #[inline(always)]
            fn put<S: ::polychron_schema::KeySink>(&self, sink: &mut S, _: bool) {
                ::polychron_schema::derive::EnumColumn::put(*self, sink);
            }
        },
    );
    quote! {
        #key

        #[allow(trivial_bounds)]
        impl ::polychron_schema::OwnedKey for #ident #is_copied {
            type Ref<'a> = Self;

            #[inline(always)]
            fn as_key_ref(&self) -> Self {
                *self
            }

            fn takes(
                columns: &mut dyn ::std::iter::Iterator<Item = (::polychron_schema::ColumnType, bool)>,
            ) -> bool {
                ::polychron_schema::derive::takes_one::<Self>(columns)
            }

            fn take(
                reader: &mut ::polychron_schema::KeyReader<'_>,
                _: bool,
            ) -> ::std::result::Result<Self, ::polychron_schema::SchemaError> {
                <Self as ::polychron_schema::derive::EnumColumn>::take(reader)
            }
        }
    }
}

/// `Key` with what all implementations have in common.
fn key(ident: &Ident, clause: &TokenStream, own: &TokenStream) -> TokenStream {
    quote! {
        #[allow(trivial_bounds)]
        impl ::polychron_schema::Key for #ident #clause {
            #own

            type Encoded<'a>
                = <<Self as ::polychron_schema::Key>::Width as ::polychron_schema::KeyWidth>::Encoded<'a>
            where
                Self: 'a;

            #[inline(always)]
            fn encode<'a>(
                &'a self,
                scratch: &'a mut ::polychron_schema::KeyScratch,
            ) -> <Self as ::polychron_schema::Key>::Encoded<'a> {
                <<Self as ::polychron_schema::Key>::Width as ::polychron_schema::KeyWidth>::encode(self, false, scratch)
            }
        }
    }
}

fn of_struct(ident: &Ident, data: &DataStruct, problems: &mut Problems) -> TokenStream {
    data.fields.iter().for_each(|field| refuse(&field.attrs, problems));
    let mut fields = data.fields.iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        let what = match data.fields.len() {
            0 => "a struct without a field has no value to store: give it one, as in `struct Cents(i64);`",
            _ => {
                "a column holds one value: a struct with `#[derive(Column)]` has one field. A struct whose fields are columns \
                 is a row, `#[derive(Row)]`"
            }
        };
        problems.add(ident.span(), what);
        return TokenStream::new();
    };
    if types::in_option(&field.ty).is_some() {
        let what = "a column type is never NULL itself: put the `Option` around it where it is the type of a column";
        problems.add(field.ty.span(), what);
    }
    problems.take(types::check(&field.ty));
    if !problems.is_empty() {
        return TokenStream::new();
    }
    let member = field.ident.clone().map_or_else(|| Member::Unnamed(0.into()), Member::Named);
    Newtype { ident, member, inner: &field.ty }.expand()
}

/// A struct around one value.
struct Newtype<'a> {
    ident: &'a Ident,
    member: Member,
    inner: &'a Type,
}

impl Newtype<'_> {
    fn expand(&self) -> TokenStream {
        let (column, blank, key, inner) = (self.column(), self.blank(), self.key(), self.inner());
        let (Self { ident, member, .. }, clause, check) = (self, self.clause(), self.check());
        quote! {
            #check
            #column
            #blank
            #key
            #inner

            #[allow(trivial_bounds)]
            impl ::std::convert::From<#ident> for ::polychron_schema::Value #clause {
                fn from(value: #ident) -> Self {
                    ::polychron_schema::derive::Inner::to_value(value.#member)
                }
            }
        }
    }

    /// Asks whether the struct is copied where it is read by value.
    fn check(&self) -> TokenStream {
        let Self { ident, inner, .. } = self;
        let what = format!("`{ident}` is read by value and must be copied: derive `Clone` and `Copy` for it");
        quote_spanned! {ident.span()=>
            const _: () = {
                #[allow(unused_imports)]
                use ::polychron_schema::derive::{NotCopied as _, NotReadByValue as _};
                ::std::assert!(
                    !::polychron_schema::derive::ReadByValue::<#inner>::IS || ::polychron_schema::derive::Copied::<#ident>::IS,
                    #what
                );
            };
        }
    }

    /// Says of every implementation that the field's type is a column type, so that one that is none is told of once, at the field. What is read
    /// of the struct can be copied, which the compiler takes from here and [`Newtype::check`] finds out.
    fn clause(&self) -> TokenStream {
        let Self { ident, inner, .. } = self;
        quote_spanned! {inner.span()=>
            where
                #inner: ::polychron_schema::derive::Inner,
                for<'read> <#inner as ::polychron_schema::derive::Inner>::Wrapped<'read, #ident>: ::std::marker::Copy
        }
    }

    /// The same for what also needs the struct as it is read to be a key.
    fn key_clause(&self) -> TokenStream {
        let Self { ident, inner, .. } = self;
        let clause = self.clause();
        quote_spanned! {inner.span()=>
            #clause,
                for<'read> <#inner as ::polychron_schema::derive::Inner>::Wrapped<'read, #ident>: ::polychron_schema::Key
        }
    }

    fn column(&self) -> TokenStream {
        let (Self { ident, member, inner }, clause) = (self, self.clause());
        let get = quote!(|value: &Self| &value.#member);
        let make = quote!(|inner: #inner| Self { #member: inner });
        quote! {
            #[allow(trivial_bounds)]
            impl ::polychron_schema::ColumnValue for #ident #clause {
                type Ref<'a> = <#inner as ::polychron_schema::derive::Inner>::Wrapped<'a, Self>;
                type Plain = Self;
                type Written = <#inner as ::polychron_schema::ColumnValue>::Written;
                const TYPE: ::polychron_schema::ColumnType = <#inner as ::polychron_schema::ColumnValue>::TYPE;

                #[inline(always)]
                fn read<'a>(row: ::polychron_schema::RowRef<'a>, slot: ::polychron_schema::Slot) -> Self::Ref<'a> {
                    <#inner as ::polychron_schema::derive::Inner>::wrap(
                        <#inner as ::polychron_schema::ColumnValue>::read(row, slot),
                        #make,
                    )
                }

                #[inline(always)]
                fn build(
                    out: &mut ::polychron_schema::RowBuffer,
                    slot: ::polychron_schema::Slot,
                    value: Self::Ref<'_>,
                ) {
                    let value = <#inner as ::polychron_schema::derive::Inner>::unwrap(&value, #get);
                    <#inner as ::polychron_schema::ColumnValue>::build(out, slot, value)
                }

                #[inline(always)]
                fn change(
                    row: &mut ::polychron_schema::RowMut<'_>,
                    name: &'static str,
                    slot: ::polychron_schema::Slot,
                    value: Self::Ref<'_>,
                ) -> Self::Written {
                    let value = <#inner as ::polychron_schema::derive::Inner>::unwrap(&value, #get);
                    <#inner as ::polychron_schema::ColumnValue>::change(row, name, slot, value)
                }

                #[inline]
                fn variable_len(value: Self::Ref<'_>) -> usize {
                    let value = <#inner as ::polychron_schema::derive::Inner>::unwrap(&value, #get);
                    <#inner as ::polychron_schema::ColumnValue>::variable_len(value)
                }

                #[inline(always)]
                fn borrow(&self) -> Self::Ref<'_> {
                    <#inner as ::polychron_schema::derive::Inner>::wrap(
                        <#inner as ::polychron_schema::ColumnValue>::borrow(&self.#member),
                        #make,
                    )
                }

                #[inline(always)]
                fn own(value: Self::Ref<'_>) -> Self {
                    let inner = <#inner as ::polychron_schema::derive::Inner>::unwrap(&value, #get);
                    Self { #member: <#inner as ::polychron_schema::ColumnValue>::own(inner) }
                }
            }
        }
    }

    fn blank(&self) -> TokenStream {
        let (Self { ident, inner, .. }, clause) = (self, self.clause());
        quote! {
            #[allow(trivial_bounds)]
            impl ::polychron_schema::derive::Blank for #ident #clause {
                #[inline]
                fn write_null(out: &mut ::polychron_schema::RowBuffer, slot: ::polychron_schema::Slot) {
                    <#inner as ::polychron_schema::derive::Blank>::write_null(out, slot)
                }

                #[inline]
                fn change_to_null(
                    row: &mut ::polychron_schema::RowMut<'_>,
                    name: &'static str,
                    slot: ::polychron_schema::Slot,
                ) -> Self::Written {
                    <#inner as ::polychron_schema::derive::Blank>::change_to_null(row, name, slot)
                }
            }
        }
    }

    fn key(&self) -> TokenStream {
        let (Self { ident, member, inner }, clause, key_clause) = (self, self.clause(), self.key_clause());
        let key = key(
            ident,
            &clause,
            &quote! {
                type Width = <#inner as ::polychron_schema::Key>::Width;
                const FIXED_BYTES: ::std::option::Option<usize> = <#inner as ::polychron_schema::Key>::FIXED_BYTES;

                #[inline(always)]
                fn put<S: ::polychron_schema::KeySink>(&self, sink: &mut S, open: bool) {
                    ::polychron_schema::Key::put(&self.#member, sink, open);
                }

                #[inline(always)]
                fn raw(&self, open: bool) -> ::std::option::Option<&[u8]> {
                    ::polychron_schema::Key::raw(&self.#member, open)
                }
            },
        );
        quote! {
            #key

            #[allow(trivial_bounds)]
            impl ::polychron_schema::OwnedKey for #ident #key_clause {
                type Ref<'a> = <#inner as ::polychron_schema::derive::Inner>::Wrapped<'a, Self>;

                #[inline(always)]
                fn as_key_ref(&self) -> <Self as ::polychron_schema::OwnedKey>::Ref<'_> {
                    <Self as ::polychron_schema::ColumnValue>::borrow(self)
                }

                fn takes(
                    columns: &mut dyn ::std::iter::Iterator<Item = (::polychron_schema::ColumnType, bool)>,
                ) -> bool {
                    <#inner as ::polychron_schema::OwnedKey>::takes(columns)
                }

                fn take(
                    reader: &mut ::polychron_schema::KeyReader<'_>,
                    open: bool,
                ) -> ::std::result::Result<Self, ::polychron_schema::SchemaError> {
                    let inner = <#inner as ::polychron_schema::OwnedKey>::take(reader, open)?;
                    ::std::result::Result::Ok(Self { #member: inner })
                }
            }
        }
    }

    fn inner(&self) -> TokenStream {
        let (Self { ident, member, inner }, clause) = (self, self.key_clause());
        let make = quote!(|inner: #inner| Self { #member: inner });
        quote! {
            #[allow(trivial_bounds)]
            impl ::polychron_schema::derive::KeyColumn for #ident #clause {}

            #[allow(trivial_bounds)]
            impl ::polychron_schema::derive::Inner for #ident #clause {
                const BY_VALUE: bool = <#inner as ::polychron_schema::derive::Inner>::BY_VALUE;

                type Wrapped<'a, N: 'static> = <#inner as ::polychron_schema::derive::Inner>::Wrapped<'a, N>;

                #[inline(always)]
                fn wrap<'a, N: 'static>(
                    inner: <Self as ::polychron_schema::ColumnValue>::Ref<'a>,
                    make: impl ::std::ops::FnOnce(Self) -> N,
                ) -> Self::Wrapped<'a, N> {
                    <#inner as ::polychron_schema::derive::Inner>::map(inner, make)
                }

                #[inline(always)]
                fn map<'a, A: 'static, B: 'static>(
                    wrapped: Self::Wrapped<'a, A>,
                    turn: impl ::std::ops::FnOnce(A) -> B,
                ) -> Self::Wrapped<'a, B> {
                    <#inner as ::polychron_schema::derive::Inner>::map(wrapped, turn)
                }

                #[inline(always)]
                fn unwrap<'v, 'a: 'v, N: 'static>(
                    wrapped: &'v Self::Wrapped<'a, N>,
                    get: impl ::std::ops::FnOnce(&N) -> &Self,
                ) -> <Self as ::polychron_schema::ColumnValue>::Ref<'v> {
                    <#inner as ::polychron_schema::derive::Inner>::wrap(
                        <#inner as ::polychron_schema::derive::Inner>::unwrap(wrapped, |value: &N| &get(value).#member),
                        #make,
                    )
                }

                #[inline]
                fn to_value(self) -> ::polychron_schema::Value {
                    ::polychron_schema::derive::Inner::to_value(self.#member)
                }
            }
        }
    }
}
