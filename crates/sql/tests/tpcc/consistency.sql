SELECT '1', w_id FROM warehouse WHERE w_ytd <> (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id);

SELECT '2', d_w_id, d_id FROM district
    WHERE d_next_o_id - 1 <> (SELECT coalesce(max(o_id), 0) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)
    OR d_next_o_id - 1 <> (SELECT coalesce(max(no_o_id), d_next_o_id - 1) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id);

SELECT '3', no_w_id, no_d_id FROM new_order GROUP BY no_w_id, no_d_id HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*);

SELECT '4', d_w_id, d_id FROM district
    WHERE (SELECT coalesce(sum(o_ol_cnt), 0) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)
    <> (SELECT count(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id);

SELECT '5', o_w_id, o_d_id, o_id FROM orders WHERE (o_carrier_id IS NULL)
    <> EXISTS (SELECT FROM new_order WHERE no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id);

SELECT '6', o_w_id, o_d_id, o_id FROM orders
    WHERE o_ol_cnt <> (SELECT count(*) FROM order_line WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id);

SELECT '7', ol_w_id, ol_d_id, ol_o_id FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
    WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL);

SELECT '8', w_id FROM warehouse WHERE w_ytd <> (SELECT coalesce(sum(h_amount), 0) FROM history WHERE h_w_id = w_id);

SELECT '9', d_w_id, d_id FROM district
    WHERE d_ytd <> (SELECT coalesce(sum(h_amount), 0) FROM history WHERE h_w_id = d_w_id AND h_d_id = d_id);

SELECT '10', c_w_id, c_d_id, c_id FROM customer WHERE c_balance <>
    (SELECT coalesce(sum(ol_amount), 0) FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
        WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND ol_delivery_d IS NOT NULL)
    - (SELECT coalesce(sum(h_amount), 0) FROM history WHERE h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id);

SELECT '11', d_w_id, d_id FROM district WHERE
    (SELECT count(*) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)
    - (SELECT count(*) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id)
    <> (SELECT sum(c_delivery_cnt) FROM customer WHERE c_w_id = d_w_id AND c_d_id = d_id);

SELECT '12', c_w_id, c_d_id, c_id FROM customer WHERE c_balance + c_ytd_payment <>
    (SELECT coalesce(sum(ol_amount), 0) FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
        WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND ol_delivery_d IS NOT NULL);
