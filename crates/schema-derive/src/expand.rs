//! Writes what a row needs: constants of its columns, the trait, and the two views.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprUnary, Path, UnOp};

use crate::parse::{Column, Index, Parent, Table};
use crate::types;

pub(crate) fn expand(table: &Table<'_>) -> TokenStream {
    let constants = constants(table);
    let row = row_trait(table);
    let reference = reference(table);
    let mutable = mutable(table);
    let asserts = asserts(table);
    let tokens = quote! {
        #constants
        #row
        #reference
        #mutable
        #asserts
    };
    at_root(tokens, table.root.as_ref())
}

/// The tokens, with `::polychron_schema` replaced where the caller knows the crate by another path.
pub(crate) fn at_root(tokens: TokenStream, root: Option<&Path>) -> TokenStream {
    match root {
        Some(root) => with_root(tokens, &quote!(#root)),
        None => tokens,
    }
}

/// Replaces `::polychron_schema` by the path under which the caller knows the crate.
fn with_root(tokens: TokenStream, root: &TokenStream) -> TokenStream {
    let mut result: Vec<TokenTree> = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == "polychron_schema" => {
                // Of `constant: ::polychron_schema` the first colon stays.
                let colons = result.iter().rev().take(2).take_while(|token| is_colon(token)).count();
                result.truncate(result.len() - colons);
                result.extend(root.clone());
            }
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), with_root(group.stream(), root));
                inner.set_span(group.span());
                result.push(inner.into());
            }
            other => result.push(other),
        }
    }
    result.into_iter().collect()
}

fn is_colon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':')
}

/// What the compiler must be told of the columns' types, which a macro cannot see: a clause for each that is not known by its name.
///
/// Every implementation carries them, at the field, so that a type that is no column type is one error there and not one for
/// each of its uses.
fn clauses(table: &Table<'_>) -> TokenStream {
    let in_key = |position: usize| {
        let is_in = |columns: &[usize]| columns.contains(&position);
        table.columns[position].key.is_some() || table.indexes.iter().any(|index| is_in(&index.columns))
    };
    let unknown = table.columns.iter().enumerate().filter(|(_, column)| !types::is_surely_column(column.column_type));
    let clauses = unknown.map(|(position, column)| {
        let (column_type, span) = (column.column_type, column.column_type.span());
        match in_key(position) {
            true => quote_spanned!(span=> #column_type: ::polychron_schema::derive::KeyColumn),
            false => quote_spanned!(span=> #column_type: ::polychron_schema::ColumnValue),
        }
    });
    quote!(where #(#clauses,)*)
}

fn constant_of(column: &Column<'_>) -> Ident {
    Ident::new(&column.name.to_uppercase(), column.ident.span())
}

fn number(value: usize) -> proc_macro2::Literal {
    proc_macro2::Literal::usize_unsuffixed(value)
}

/// The one type, or the tuple, of some columns.
fn key_type(columns: &[&Column<'_>]) -> TokenStream {
    let types = columns.iter().map(|column| column.column_type);
    match columns {
        [single] => {
            let column_type = single.column_type;
            quote!(#column_type)
        }
        _ => quote!((#(#types,)*)),
    }
}

/// The one value, or the tuple, of some expressions.
fn key_value(values: &[TokenStream]) -> TokenStream {
    match values {
        [single] => single.clone(),
        _ => quote!((#(#values,)*)),
    }
}

fn constants(table: &Table<'_>) -> TokenStream {
    let (ident, visibility) = (table.ident, table.visibility);
    let count = table.columns.len();
    let shapes = table.columns.iter().map(|column| {
        let column_type = column.column_type;
        let bounded = column.max.as_ref().map(|max| quote!(.bounded_by(#max)));
        quote! {
            ::polychron_schema::ColumnShape {
                column_type: <#column_type as ::polychron_schema::ColumnValue>::TYPE #bounded,
                nullable: <#column_type as ::polychron_schema::ColumnValue>::NULLABLE,
            }
        }
    });
    let columns = table.columns.iter().enumerate().map(|(position, column)| {
        let (constant, column_type, name, docs) = (constant_of(column), column.column_type, &column.name, &column.docs);
        let position = number(position);
        let title = format!("The column `{name}`.");
        let path = format!("{}.{name}", table.name);
        quote! {
            #[doc = #title]
            #[doc = ""]
            #(#docs)*
            #visibility const #constant: ::polychron_schema::Column<Self, #column_type> =
                ::polychron_schema::Column::new(#name, #path, #position, Self::ROW_LAYOUT.slots[#position]);
        }
    });
    let indexes = table.indexes.iter().enumerate().map(|(position, index)| index_constant(table, position, index));
    let clauses = clauses(table);
    quote! {
        #[allow(dead_code, trivial_bounds)]
        impl #ident #clauses {
            const ROW_COLUMNS: [::polychron_schema::ColumnShape; #count] = [#(#shapes),*];
            const ROW_LAYOUT: ::polychron_schema::StaticLayout<#count> =
                ::polychron_schema::StaticLayout::new(&Self::ROW_COLUMNS);
            #(#columns)*
            #(#indexes)*
        }
    }
}

fn index_constant(table: &Table<'_>, position: usize, index: &Index) -> TokenStream {
    let visibility = table.visibility;
    let columns: Vec<_> = index.columns.iter().map(|&column| &table.columns[column]).collect();
    let key = key_type(&columns);
    let (name, unique) = (&index.name, index.unique);
    let constant = Ident::new(&name.to_uppercase(), index.span);
    let title = format!("The index `{name}`.");
    let nullable = columns.iter().map(|column| {
        let column_type = column.column_type;
        quote!(<#column_type as ::polychron_schema::ColumnValue>::NULLABLE)
    });
    quote! {
        #[doc = #title]
        #visibility const #constant: ::polychron_schema::Index<Self, #key> =
            ::polychron_schema::Index::new(#name, #position, #unique, #(#nullable)||*);
    }
}

fn definition(table: &Table<'_>) -> TokenStream {
    let name = &table.name;
    let columns = table.columns.iter().enumerate().map(|(position, column)| {
        let name = &column.name;
        quote! {
            ::polychron_schema::ColumnDefinition {
                name: ::std::string::String::from(#name),
                column_type: Self::ROW_COLUMNS[#position].column_type,
                nullable: Self::ROW_COLUMNS[#position].nullable,
            }
        }
    });
    let key = table.columns.iter().enumerate().filter(|(_, column)| column.key.is_some()).map(|(position, _)| position);
    let kind = |hash: bool| {
        let kind = if hash { format_ident!("Hash") } else { format_ident!("Ordered") };
        quote!(::polychron_schema::IndexKind::#kind)
    };
    let indexes = table.indexes.iter().map(|index| {
        let (name, columns, unique, kind) = (&index.name, &index.columns, index.unique, kind(index.hash));
        quote! {
            ::polychron_schema::IndexDefinition {
                name: ::std::string::String::from(#name),
                columns: ::std::vec![#(#columns),*],
                orders: ::std::vec::Vec::new(),
                unique: #unique,
                kind: #kind,
            }
        }
    });
    let foreign_keys = table.foreign_keys.iter().map(|foreign_key| {
        let (columns, parent) = (&foreign_key.columns, &foreign_key.parent);
        let parent = match parent {
            Parent::Row(parent) => quote!(<#parent as ::polychron_schema::Row>::NAME),
            Parent::Name(parent) => quote!(#parent),
        };
        quote!(::polychron_schema::ForeignKeyDefinition::new([#(#columns),*], #parent))
    });
    let primary = kind(table.primary_hash);
    let expected = table.expected_rows.as_ref().map_or(quote!(0), |rows| quote!(#rows));
    let partition = table
        .partition
        .map_or(quote!(::std::option::Option::None), |position| quote!(::std::option::Option::Some(#position)));
    quote! {
        ::polychron_schema::TableDefinition {
            name: ::std::string::String::from(#name),
            columns: ::std::vec![#(#columns),*],
            key: ::std::vec![#(#key),*],
            indexes: ::std::vec![#(#indexes),*],
            foreign_keys: ::std::vec![#(#foreign_keys),*],
            primary_kind: #primary,
            expected_rows: #expected,
            partition_column: #partition,
        }
    }
}

/// Whether an expression is a literal, or the negative of one.
fn is_literal(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(_) => true,
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => is_literal(expr),
        _ => false,
    }
}

/// What the attributes say of the past, if they say anything.
fn history(table: &Table<'_>) -> Option<TokenStream> {
    table.columns.iter().find(|column| column.was.is_some() || column.default.is_some())?;
    let none = quote!(::std::option::Option::None);
    let columns = table.columns.iter().map(|column| {
        let was = column.was.as_ref().map(|was| quote!(::std::option::Option::Some(::std::string::String::from(#was))));
        let default = column.default.as_ref().map(|default| {
            let span = default.span();
            let column_type = column.column_type;
            // A literal is no option, so it can only be the value of one.
            let is_value = types::in_option(column_type).is_some() && is_literal(default);
            let default = if is_value { quote!(::std::option::Option::Some(#default)) } else { quote!(#default) };
            // The type of the binding, and so the error of another one, at the expression.
            quote_spanned! {span=> {
                let value: <#column_type as ::polychron_schema::ColumnValue>::Ref<'static> = #default;
                ::std::option::Option::Some(::std::convert::From::from(<#column_type as ::polychron_schema::ColumnValue>::own(value)))
            }}
        });
        let (was, default) = (was.unwrap_or_else(|| none.clone()), default.unwrap_or_else(|| none.clone()));
        quote!(::polychron_schema::ColumnHistory { was: #was, default: #default })
    });
    Some(quote! {
        fn history() -> ::std::vec::Vec<::polychron_schema::ColumnHistory> {
            ::std::vec![#(#columns),*]
        }
    })
}

fn row_trait(table: &Table<'_>) -> TokenStream {
    let (ident, name) = (table.ident, &table.name);
    let (reference, mutable) = view_names(table);
    let (definition, history) = (definition(table), history(table));
    let key_columns: Vec<_> = table.columns.iter().filter(|column| column.key.is_some()).collect();
    let key = key_type(&key_columns);
    let keys = key_methods(&key_columns);
    let codec = codec_methods(table, &reference);
    let clauses = clauses(table);
    quote! {
        #[allow(trivial_bounds)]
        impl ::polychron_schema::Row for #ident #clauses {
            type Key = #key;
            type Ref<'a> = #reference<'a>;
            type Mut<'a> = #mutable<'a>;
            const NAME: &'static str = #name;
            const SHAPE: ::polychron_schema::Shape = Self::ROW_LAYOUT.shape;

            fn definition() -> ::polychron_schema::TableDefinition {
                #definition
            }

            #history

            #[inline(always)]
            fn view(row: ::polychron_schema::RowRef<'_>) -> #reference<'_> {
                #reference { row }
            }

            #[inline(always)]
            fn from_row_mut(row: ::polychron_schema::RowMut<'_>) -> #mutable<'_> {
                #mutable { row }
            }

            #keys
            #codec
        }
    }
}

fn key_methods(key_columns: &[&Column<'_>]) -> TokenStream {
    let each_key = |f: &dyn Fn(&Column<'_>) -> TokenStream| {
        key_value(&key_columns.iter().map(|column| f(column)).collect::<Vec<_>>())
    };
    let owned = each_key(&|column| {
        let field = column.ident;
        quote!(::std::clone::Clone::clone(&self.#field))
    });
    let borrowed = each_key(&|column| {
        let field = column.ident;
        quote!(::polychron_schema::OwnedKey::as_key_ref(&self.#field))
    });
    let read = each_key(&|column| {
        let (constant, column_type) = (constant_of(column), column.column_type);
        quote!(<#column_type as ::polychron_schema::ColumnValue>::own(Self::#constant.get(row)))
    });
    quote! {
        #[inline]
        fn key(&self) -> Self::Key {
            #owned
        }

        #[inline]
        fn key_ref(&self) -> ::polychron_schema::KeyRef<'_, Self> {
            #borrowed
        }

        #[inline]
        fn key_of(row: ::polychron_schema::RowRef<'_>) -> Self::Key {
            #read
        }
    }
}

fn codec_methods(table: &Table<'_>, reference: &Ident) -> TokenStream {
    let fields: Vec<_> = table.columns.iter().map(|column| column.ident).collect();
    let constants: Vec<_> = table.columns.iter().map(constant_of).collect();
    let types = table.columns.iter().map(|column| column.column_type);
    quote! {
        fn encode(
            &self,
            out: &mut ::polychron_schema::RowBuffer,
        ) -> ::std::result::Result<(), ::polychron_schema::SchemaError> {
            out.build(<Self as ::polychron_schema::Row>::SHAPE, |out| {
                #(Self::#constants.build(out, &self.#fields)?;)*
                ::polychron_schema::Key::check(&<Self as ::polychron_schema::Row>::key_ref(self))
            })
        }

        fn from_ref(view: #reference<'_>) -> Self {
            Self {
                #(#fields: <#types as ::polychron_schema::ColumnValue>::own(Self::#constants.get(view.row)),)*
            }
        }
    }
}

fn view_names(table: &Table<'_>) -> (Ident, Ident) {
    (format_ident!("{}Ref", table.ident), format_ident!("{}Mut", table.ident))
}

/// Getters over an expression that gives the row.
fn getters<'t>(
    table: &'t Table<'_>,
    receiver: &'t TokenStream,
    lifetime: &'t TokenStream,
    row: &'t TokenStream,
) -> impl Iterator<Item = TokenStream> + 't {
    let (ident, visibility) = (table.ident, table.visibility);
    table.columns.iter().map(move |column| {
        let (field, column_type, constant) = (column.ident, column.column_type, constant_of(column));
        let (docs, title) = (&column.docs, format!("Reads the column `{}`.", column.name));
        quote! {
            #[doc = #title]
            #[doc = ""]
            #(#docs)*
            #[inline(always)]
            #visibility fn #field(#receiver) -> <#column_type as ::polychron_schema::ColumnValue>::Ref<#lifetime> {
                #ident::#constant.get(#row)
            }
        }
    })
}

fn reference(table: &Table<'_>) -> TokenStream {
    let (ident, visibility) = (table.ident, table.visibility);
    let (reference, _) = view_names(table);
    let title = format!("A view of an encoded [`{ident}`].");
    let (receiver, lifetime, row) = (quote!(self), quote!('a), quote!(self.row));
    let getters = getters(table, &receiver, &lifetime, &row);
    let clauses = clauses(table);
    quote! {
        #[doc = #title]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #reference<'a> {
            row: ::polychron_schema::RowRef<'a>,
        }

        #[allow(dead_code, trivial_bounds)]
        impl<'a> #reference<'a> #clauses {
            #(#getters)*
        }

        impl<'a> ::polychron_schema::RowView<'a> for #reference<'a> {
            #[inline(always)]
            fn into_row(self) -> ::polychron_schema::RowRef<'a> {
                self.row
            }
        }
    }
}

fn mutable(table: &Table<'_>) -> TokenStream {
    let (ident, visibility) = (table.ident, table.visibility);
    let (_, mutable) = view_names(table);
    let title = format!("An encoded [`{ident}`] whose columns outside the key can be changed.");
    let (receiver, lifetime, row) = (quote!(&self), quote!('_), quote!(self.row.as_row()));
    let getters = getters(table, &receiver, &lifetime, &row);
    let setters = table.columns.iter().filter(|column| column.key.is_none()).map(|column| {
        let (column_type, constant) = (column.column_type, constant_of(column));
        let setter = Ident::new(&format!("set_{}", column.name), Span::call_site());
        let title = format!("Changes the column `{}`.", column.name);
        quote! {
            #[doc = #title]
            #[inline(always)]
            #visibility fn #setter(
                &mut self,
                value: <#column_type as ::polychron_schema::ColumnValue>::Ref<'_>,
            ) -> <#column_type as ::polychron_schema::ColumnValue>::Written {
                #ident::#constant.set(&mut self.row, value)
            }
        }
    });
    let clauses = clauses(table);
    quote! {
        #[doc = #title]
        #[derive(Debug)]
        #visibility struct #mutable<'a> {
            row: ::polychron_schema::RowMut<'a>,
        }

        #[allow(dead_code, trivial_bounds)]
        impl<'a> #mutable<'a> #clauses {
            #(#getters)*
            #(#setters)*
        }

        impl ::polychron_schema::RowViewMut for #mutable<'_> {
            #[inline(always)]
            fn as_row(&self) -> ::polychron_schema::RowRef<'_> {
                self.row.as_row()
            }

            #[inline(always)]
            fn changes(&self) -> ::polychron_schema::Changes {
                self.row.changes()
            }
        }
    }
}

/// What can only be checked when the types are known, each at its field. A type that is no column type is told of elsewhere, and
/// passes for one here.
fn asserts(table: &Table<'_>) -> TokenStream {
    let shape_of = |column: &Column<'_>| {
        let column_type = column.column_type;
        quote!(::polychron_schema::derive::Probe::<#column_type>::SHAPE)
    };
    let columns = table.columns.iter().map(|column| {
        let shape = shape_of(column);
        let bounded = column.max.as_ref().map(|max| quote!(.bounded_by(#max)));
        quote!(::polychron_schema::ColumnShape { column_type: #shape.column_type #bounded, nullable: #shape.nullable })
    });
    let nullable_keys = table.columns.iter().filter(|column| column.key.is_some()).map(|column| {
        let (shape, message) =
            (shape_of(column), format!("the key column `{}` cannot be NULL: it is an Option", column.name));
        quote_spanned!(column.column_type.span()=> const _: () = ::std::assert!(!#shape.nullable, #message);)
    });
    let types = table.columns.iter().filter(|column| !types::is_surely_column(column.column_type)).map(|column| {
        let shape = shape_of(column);
        let message = format!(
            "the width or the scale of `{}` is out of bounds: fixed strings and bytes have 1 byte to 1 MiB, decimals at most 18 digits \
             behind the point and 128-bit decimals 38",
            column.name
        );
        quote_spanned!(column.column_type.span()=> const _: () = ::std::assert!(#shape.column_type.is_valid(), #message);)
    });
    let maxima = table.columns.iter().filter_map(|column| {
        let (shape, max) = (shape_of(column), column.max.as_ref()?);
        let variable = format!("only `String` and `Vec<u8>` have a maximum: remove `max` of `{}`", column.name);
        let bound = format!("the maximum of `{}` is more than a row holds, 1048576 bytes: lower it", column.name);
        Some(quote_spanned! {max.span()=>
            const _: () = {
                ::std::assert!(#shape.column_type.is_variable() || !#shape.is_column, #variable);
                ::std::assert!(#shape.column_type.bounded_by(#max).is_valid(), #bound);
            };
        })
    });
    let (count, ident) = (table.columns.len(), table.ident);
    let row = quote_spanned! {ident.span()=>
        const _: () = ::std::assert!(
            ::polychron_schema::StaticLayout::new(SHAPES).shape.fixed_bytes as usize <= ::polychron_schema::MAX_ROW_BYTES,
            "the columns of fixed width are longer than a row may be, 1048576 bytes: keep some in another table"
        );
        const _: () = ::std::assert!(
            #count <= ::polychron_schema::MAX_COLUMNS,
            "a table has at most 1024 columns: keep some in another table"
        );
    };
    quote! {
        const _: () = {
            #[allow(unused_imports)]
            use ::polychron_schema::derive::NotAColumn as _;
            #[allow(dead_code)]
            const SHAPES: &[::polychron_schema::ColumnShape; #count] = &[#(#columns),*];
            #(#nullable_keys)*
            #(#types)*
            #(#maxima)*
            #row
        };
    }
}
