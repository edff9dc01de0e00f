import './base.css';
import './cards.css';
import './pages.css';
import './rows.css';
