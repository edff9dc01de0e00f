import './base.css';
import './cards.css';
import './rows.css';
